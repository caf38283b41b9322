//! Errors for names and calls that are well formed but not supported.

use alloc::format;
use alloc::string::ToString as _;
use alloc::vec::Vec;

use crate::error::{Code, Error, Position};
use crate::syntax::{Call, Function, Operand};

/// What an action may consist of, for messages.
const ALLOWED: &str = "allowed are values, strings, variables, `if`, `else`, `with`, `end` and functions";

pub(super) fn whole_data(at: Position) -> Error {
    let text = "all values at once are no value; name one: `.name`";
    Error::new(Code::Unsupported, at, text)
}

pub(super) fn missing_end(opened: Position) -> Error {
    Error::new(Code::Syntax, opened, "this `if` or `with` has no `end`")
}

/// The error for `word`, which is not a supported function.
pub(super) fn unknown_word(word: &str, at: Position) -> Error {
    let known: Vec<_> = Function::ALL.iter().map(|(name, _)| format!("`{name}`")).collect();
    let known = known.join(", ");
    match word {
        "range" | "define" | "template" | "block" | "break" | "continue" | "nil" | "if" | "with" | "else" | "end" => {
            Error::new(
                Code::Unsupported,
                at,
                format!("`{word}` may not stand here; {ALLOWED} {known}"),
            )
        }
        "call" | "html" | "js" | "len" | "slice" | "print" | "println" | "lt" | "le" | "gt" | "ge" => {
            let hint = match word {
                "js" => "; JSON strings are made by `json`",
                "print" | "println" => "; texts are joined by `printf \"%s%s\"`",
                _ => "",
            };
            let text = format!("function `{word}` of Go is left out here{hint}; there are {known}");
            Error::new(Code::Unsupported, at, text)
        }
        _ => {
            let text = format!("no function `{word}`; a value is `.{word}`, and functions are {known}");
            Error::new(Code::UnknownFunction, at, text)
        }
    }
}

/// Checks a call as far as possible without values. `piped` is 1 if it gets a value through `|`,
/// else 0.
pub(super) fn check_call(call: &Call, piped: usize) -> Result<(), Error> {
    let name = call.function.name();
    let given = call.arguments.len() + piped;
    let (least, most) = call.function.arity();
    if given < least || given > most {
        let wanted = match (least, most) {
            (1, 1) => "one argument".to_string(),
            (2, 2) => "two arguments".to_string(),
            (least, _) => format!("at least {least} arguments"),
        };
        let text = format!("`{name}` takes {wanted} and got {given}");
        return Err(Error::new(Code::Type, call.at, text));
    }
    if call.function == Function::Printf {
        return check_printf(call, given - 1);
    }
    Ok(())
}

/// Checks that the format is a literal, and that its verbs match the number of arguments.
fn check_printf(call: &Call, given: usize) -> Result<(), Error> {
    let Some(Operand::Text(format)) = call.arguments.first() else {
        let text = "`printf` takes its format as a string: `printf \"%s:%s\" .user .password`";
        return Err(Error::new(Code::Unsupported, call.at, text));
    };
    let mut wanted = 0;
    let mut rest = format.as_str();
    while let Some((_, after)) = rest.split_once('%') {
        rest = match after.as_bytes().first() {
            Some(b's') => {
                wanted += 1;
                after.get(1..).unwrap_or_default()
            }
            Some(b'%') => after.get(1..).unwrap_or_default(),
            _ => {
                let text = "`printf` knows `%s` and `%%`, without width or flags";
                return Err(Error::new(Code::Unsupported, call.at, text));
            }
        };
    }
    if wanted == given {
        return Ok(());
    }
    let text = format!("this format takes {wanted} values and got {given}");
    Err(Error::new(Code::Type, call.at, text))
}
