//! Entry points that answer from the script. Their names and parameters are those of NVML's header.

mod cards;
mod fields;
mod instances;
mod library;
mod scalars;

/// Declares entry points about one card: failures first, then the body, which sees the card's name
/// in the script and the function's own name.
macro_rules! card_call {
    ($($name:ident($card:ident, $own:ident $(, $arg:ident: $type:ty)*) $body:block)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(device: nvml::nvmlDevice_t $(, $arg: $type)*) -> Code {
            let answer = || -> Result<(), Code> {
                let $card = answer::name_of(device)?;
                let $own = stringify!($name);
                answer::enter_card(&$card, $own)?;
                $body
            };
            answer::code_of(answer())
        }
    )* };
}

pub(crate) use card_call;
