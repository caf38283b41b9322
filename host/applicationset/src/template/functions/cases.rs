//! Template functions for upper and lower case, words and names.

use super::Args;
use super::strings::{lower, upper};
use crate::template::ExecError;
use crate::template::value::{Heap, Value};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let change: fn(&str) -> String = match args.name {
        "camelcase" => pascal,
        "initials" => initials,
        "kebabcase" => return words(heap, args, '-'),
        "normalize" => return heap.text(normalize(args.text(0)?)),
        "slugify" => return slugify(heap, args),
        "snakecase" => return words(heap, args, '_'),
        "swapcase" => swap,
        "title" => |text| first_letters(text, separates, upper),
        "untitle" => |text| first_letters(text, char::is_whitespace, lower),
        _ => return Err(args.unknown()),
    };
    let text = args.ascii(heap, 0)?;
    heap.text(change(text))
}

/// Changes the first letter and each one after a separator.
fn first_letters(text: &str, separates: fn(char) -> bool, change: fn(char) -> char) -> String {
    let mut apart = true;
    let letters = text.chars().map(|letter| {
        let first = std::mem::replace(&mut apart, separates(letter));
        if first { change(letter) } else { letter }
    });
    letters.collect()
}

fn separates(letter: char) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_alphanumeric() && letter != '_';
    }
    !letter.is_alphanumeric() && letter.is_whitespace()
}

fn initials(text: &str) -> String {
    text.split_whitespace().filter_map(|word| word.chars().next()).collect()
}

fn swap(text: &str) -> String {
    let letters = text.chars().map(|letter| match letter.is_uppercase() {
        true => lower(letter),
        false => upper(letter),
    });
    letters.collect()
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
    for mut letter in letters {
        match (connects(held), connects(letter)) {
            (true, true) => made.push(held),
            (true, false) => {
                in_capitals = letter.is_uppercase();
                letter = upper(letter);
            }
            (false, _) => {
                in_capitals &= letter.is_uppercase();
                if in_capitals {
                    letter = lower(letter);
                }
                made.push(held);
            }
        }
        held = letter;
    }
    made.push(held);
    made
}

fn words(heap: &Heap<'_>, args: &Args<'_>, connector: char) -> Result<Value, ExecError> {
    let text = args.ascii(heap, 0)?;
    heap.fits(text.len(), 8)?;
    heap.text(joined(text, connector))
}

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
    match letter {
        _ if connects(letter) => CharClass::Connector,
        _ if punctuation(letter) => CharClass::Punctuation,
        _ if letter.is_uppercase() => CharClass::Upper,
        _ if letter.is_alphabetic() => CharClass::Letters,
        _ if letter.is_numeric() => CharClass::Number,
        _ => CharClass::Other,
    }
}

/// The next run of characters of one class. `HTTPServer` gives `HTTP` and `Server`; `Server` is a
/// single run.
fn run(text: &str) -> (CharClass, &str, &str) {
    let mut kinds = text.char_indices().map(|(at, letter)| (at, kind(letter))).peekable();
    let Some((_, first)) = kinds.next() else {
        return (CharClass::Nothing, "", "");
    };
    let wanted = match (first, kinds.peek()) {
        (CharClass::Upper, Some((_, CharClass::Letters))) => CharClass::Letters,
        _ => first,
    };
    let (mut last, mut end) = (0, text.len());
    for (at, this) in kinds {
        if this != wanted {
            // The last capital before lower-case letters begins the next word.
            let is_next = wanted == CharClass::Upper && this == CharClass::Letters;
            end = if is_next { last } else { at };
            break;
        }
        last = at;
    }
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (first, word, rest)
}

fn push(made: &mut String, kind: CharClass, word: &str, connector: char) {
    match kind {
        CharClass::Connector => made.extend(word.chars().map(|_| connector)),
        CharClass::Upper | CharClass::Letters => made.extend(word.chars().map(lower)),
        _ => made.push_str(word),
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
        let is_number = match before {
            CharClass::Number => true,
            CharClass::Connector => {
                push(&mut made, before, before_word, connector);
                false
            }
            CharClass::Punctuation => false,
            _ if this != CharClass::Number => {
                made.extend(breaks(this).then_some(connector));
                false
            }
            _ if rest.is_empty() => false,
            _ => {
                let number = word;
                (this, word, rest) = run(rest);
                made.extend((this == CharClass::Letters).then_some(connector));
                made.push_str(number);
                true
            }
        };
        if is_number {
            while matches!(this, CharClass::Letters | CharClass::Number) {
                push(&mut made, this, word, connector);
                (this, word, rest) = run(rest);
            }
            made.extend((this != CharClass::Nothing && breaks(this)).then_some(connector));
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
    let letters = text.chars().take(NAME_BYTES).map(|letter| match lower(letter) {
        letter @ ('a'..='z' | '0'..='9' | '-' | '.') => letter,
        _ => '-',
    });
    letters.collect::<String>().trim_matches(['-', '.']).to_owned()
}

/// `slugify [longest] [whole words] text`.
fn slugify(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let last = args.values.len().saturating_sub(1);
    let text = if args.values.is_empty() { "" } else { args.text(last)? };
    let longest = if last > 0 { args.int(0)? } else { 50 };
    let whole = if last > 1 { args.bool(1)? } else { true };
    if longest < 0 && !whole {
        return Err(args.out_of_range());
    }
    heap.text(slug(&normalize(text), usize::try_from(longest).unwrap_or(0), whole))
}

/// With `whole`, the slug is cut after it is built, at a word boundary, and 0 means no limit.
/// Otherwise the name is cut before the slug is built.
fn slug(name: &str, longest: usize, whole: bool) -> String {
    let name = name.get(..longest).filter(|_| !whole).unwrap_or(name);
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
