//! Template functions for upper and lower case, words and names.

use super::strings::{lower, upper};
use super::{Args, FunctionEntry};
use crate::template::ExecError;
use crate::template::value::{Heap, Value};

pub(super) const TABLE: &[FunctionEntry] = &[
    ("title", 1, 1, |heap, args| ascii(heap, args, title)),
    ("untitle", 1, 1, |heap, args| ascii(heap, args, untitle)),
    ("initials", 1, 1, |heap, args| ascii(heap, args, initials)),
    ("swapcase", 1, 1, |heap, args| ascii(heap, args, swap)),
    ("snakecase", 1, 1, |heap, args| words(heap, args, '_')),
    ("kebabcase", 1, 1, |heap, args| words(heap, args, '-')),
    ("camelcase", 1, 1, |heap, args| ascii(heap, args, pascal)),
    ("normalize", 1, 1, |heap, args| heap.text(normalize(args.text(0)?))),
    ("slugify", 0, super::VARIADIC, slugify),
];

fn ascii(heap: &mut Heap<'_>, args: &Args<'_>, change: fn(&str) -> String) -> Result<Value, ExecError> {
    let text = args.ascii(heap, 0)?;
    heap.text(change(text))
}

fn title(text: &str) -> String {
    let mut apart = true;
    text.chars()
        .map(|letter| {
            let first = std::mem::replace(&mut apart, separates(letter));
            if first { upper(letter) } else { letter }
        })
        .collect()
}

fn separates(letter: char) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_alphanumeric() && letter != '_';
    }
    !letter.is_alphanumeric() && letter.is_whitespace()
}

fn untitle(text: &str) -> String {
    let mut apart = true;
    text.chars()
        .map(|letter| {
            let first = std::mem::replace(&mut apart, letter.is_whitespace());
            if first { lower(letter) } else { letter }
        })
        .collect()
}

fn initials(text: &str) -> String {
    text.split_whitespace().filter_map(|word| word.chars().next()).collect()
}

fn swap(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_uppercase() {
                lower(letter)
            } else {
                upper(letter)
            }
        })
        .collect()
}

fn connects(letter: char) -> bool {
    letter == '-' || letter == '_' || letter.is_whitespace()
}

/// Turns `some_words` into `SomeWords`. Separators at the edges and repeated ones stay.
fn pascal(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(connector) = letters.next_if(|letter| connects(*letter)) {
        made.push(connector);
    }
    let Some(first) = letters.next() else { return made };
    let mut in_capitals = first.is_uppercase();
    let mut held = upper(first);
    for letter in letters {
        let mut letter = letter;
        match (connects(held), connects(letter)) {
            (true, true) => made.push(held),
            (true, false) => {
                in_capitals = letter.is_uppercase();
                letter = upper(letter);
            }
            (false, _) => {
                if in_capitals && letter.is_uppercase() {
                    letter = lower(letter);
                } else {
                    in_capitals = false;
                }
                made.push(held);
            }
        }
        held = letter;
    }
    made.push(held);
    made
}

/// The class of a run of characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharClass {
    Nothing,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

fn punctuation(letter: char) -> bool {
    // Unicode classifies these ASCII characters as symbols.
    letter.is_ascii_punctuation() && !matches!(letter, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

fn kind(letter: char) -> CharClass {
    if connects(letter) {
        CharClass::Connector
    } else if punctuation(letter) {
        CharClass::Punctuation
    } else if letter.is_uppercase() {
        CharClass::Upper
    } else if letter.is_alphabetic() {
        CharClass::Letters
    } else if letter.is_numeric() {
        CharClass::Number
    } else {
        CharClass::Other
    }
}

/// The next run of characters of one class. `HTTPServer` gives `HTTP` and `Server`; `Server` is a
/// single run.
fn run(text: &str) -> (CharClass, &str, &str) {
    let Some(first) = text.chars().next() else {
        return (CharClass::Nothing, "", "");
    };
    let first_kind = kind(first);
    let second = text.chars().nth(1).map(kind);
    let wanted = match (first_kind, second) {
        (CharClass::Upper, Some(CharClass::Letters)) => CharClass::Letters,
        (kind, _) => kind,
    };
    let mut end = first.len_utf8();
    let mut last = end;
    for letter in text.chars().skip(1) {
        let this = kind(letter);
        if this != wanted {
            // The last capital before lower-case letters begins the next word.
            if wanted == CharClass::Upper && this == CharClass::Letters {
                end -= last;
            }
            break;
        }
        last = letter.len_utf8();
        end += last;
    }
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (first_kind, word, rest)
}

fn words(heap: &mut Heap<'_>, args: &Args<'_>, connector: char) -> Result<Value, ExecError> {
    let text = args.ascii(heap, 0)?;
    heap.fits(text.len(), 8)?;
    heap.text(joined(text, connector))
}

fn push(made: &mut String, kind: CharClass, word: &str, connector: char) {
    match kind {
        CharClass::Connector => made.extend(word.chars().map(|_| connector)),
        CharClass::Upper | CharClass::Letters => made.extend(word.chars().map(lower)),
        CharClass::Nothing | CharClass::Number | CharClass::Punctuation | CharClass::Other => made.push_str(word),
    }
}

/// Words in lower case, joined by `connector`. Digits belong to the word before them, unless
/// lower-case letters follow.
fn joined(text: &str, connector: char) -> String {
    let mut made = String::with_capacity(text.len() + text.len() / 4);
    let (mut this, mut word, mut rest) = run(text);
    let breaks = |kind: CharClass| !matches!(kind, CharClass::Connector | CharClass::Punctuation);
    while !rest.is_empty() {
        if this != CharClass::Connector {
            push(&mut made, this, word, connector);
        }
        let (before, before_word) = (this, word);
        (this, word, rest) = run(rest);
        match before {
            CharClass::Number => {
                while matches!(this, CharClass::Letters | CharClass::Number) {
                    push(&mut made, this, word, connector);
                    (this, word, rest) = run(rest);
                }
                if this != CharClass::Nothing && breaks(this) {
                    made.push(connector);
                }
            }
            CharClass::Connector => push(&mut made, before, before_word, connector),
            CharClass::Punctuation => {}
            CharClass::Nothing | CharClass::Upper | CharClass::Letters | CharClass::Other
                if this != CharClass::Number =>
            {
                if breaks(this) {
                    made.push(connector);
                }
            }
            CharClass::Nothing | CharClass::Upper | CharClass::Letters | CharClass::Other if rest.is_empty() => {}
            CharClass::Nothing | CharClass::Upper | CharClass::Letters | CharClass::Other => {
                let number = word;
                (this, word, rest) = run(rest);
                if this == CharClass::Letters {
                    made.push(connector);
                }
                push(&mut made, CharClass::Number, number, connector);
                while matches!(this, CharClass::Letters | CharClass::Number) {
                    push(&mut made, this, word, connector);
                    (this, word, rest) = run(rest);
                }
                if this != CharClass::Nothing && breaks(this) {
                    made.push(connector);
                }
            }
        }
    }
    push(&mut made, this, word, connector);
    made
}

/// Maximum length of a DNS subdomain name, in bytes.
const NAME_BYTES: usize = 253;

/// A DNS name: lower-case letters, digits, `-` and `.`, beginning and ending with a letter or
/// digit.
fn normalize(text: &str) -> String {
    let name: String = text
        .chars()
        .map(lower)
        .map(|letter| match letter {
            'a'..='z' | '0'..='9' | '-' | '.' => letter,
            _ => '-',
        })
        .take(NAME_BYTES)
        .collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// `slugify [longest] [whole words] text`.
fn slugify(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let last = args.values.len().saturating_sub(1);
    let text = if args.values.is_empty() { "" } else { args.text(last)? };
    let longest = if last > 0 { args.int(0)? } else { 50 };
    let whole = if last > 1 { args.bool(1)? } else { true };
    if longest < 0 && !whole {
        return Err(args.error("slice bounds out of range"));
    }
    heap.text(slug(&normalize(text), usize::try_from(longest).unwrap_or(0), whole))
}

/// With `whole`, the slug is cut after it is built, at a word boundary, and 0 means no limit.
/// Otherwise the name is cut before the slug is built.
fn slug(name: &str, longest: usize, whole: bool) -> String {
    let name = if whole {
        name
    } else {
        name.get(..longest).unwrap_or(name)
    };
    let mut slug = String::with_capacity(name.len());
    for letter in name.chars() {
        let letter = if letter == '.' { '-' } else { letter };
        if letter != '-' || !slug.ends_with('-') {
            slug.push(letter);
        }
    }
    let slug = slug.trim_matches(['-', '_']);
    if !whole || longest == 0 || slug.len() <= longest {
        return slug.to_owned();
    }
    let cut = slug.get(..longest).unwrap_or(slug);
    let at = slug.get(..=longest).and_then(|window| window.rfind('-'));
    at.and_then(|at| slug.get(..at)).unwrap_or(cut).to_owned()
}
