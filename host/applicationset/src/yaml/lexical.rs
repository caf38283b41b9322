//! Refuses YAML with lexical constructs that Argo CD's scanner could read differently, before it
//! is scanned.

/// Refuses what YAML parsers read differently, and what makes libyaml's port panic.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn check(text: &str) -> Result<(), String> {
    let mut line = 1_u64;
    let mut before = '\n';
    for (index, letter) in text.char_indices() {
        let rest = text.get(index..).unwrap_or_default();
        let wrong = match letter {
            '\t' | '\n' | '\r' => None,
            '%' if matches!(before, '\n' | '\r') => Some("a directive".to_owned()),
            // After letters and digits it is part of a string.
            '!' if !before.is_alphanumeric() => tag(rest).map(str::to_owned),
            '\\' if rest.len() == 1 => Some("a `\\` at the end".to_owned()),
            ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' => None,
            '\u{10000}'.. => None,
            other => Some(format!("the character U+{:04X}", u32::from(other))),
        };
        if let Some(what) = wrong {
            return Err(format!("line {line}: {what} is not read"));
        }
        if letter == '\n' {
            line = line.saturating_add(1);
        }
        before = letter;
    }
    Ok(())
}

/// What is not supported in a tag, if anything.
fn tag(text: &str) -> Option<&'static str> {
    let tag = text.split(char::is_whitespace).next().unwrap_or_default();
    tag.contains([',', '%']).then_some("a tag with `,` or `%`")
}

/// Whether a double-quoted string has no escape that only one of the parsers supports.
pub(super) fn has_portable_escapes(written: &str) -> bool {
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && letters.next() == Some('/') {
            return false;
        }
    }
    true
}
