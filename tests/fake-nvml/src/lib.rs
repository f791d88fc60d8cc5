//! A scripted stand-in for the NVIDIA management library: its cards, answers and failures come
//! from a file that is read again while it runs.
