//! What a store behind the tier gets and gives, told as examples.
