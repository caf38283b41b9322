//! Markdown: lists of described names, wrapped lines, links.

/// Most characters of a line.
const WIDTH: usize = 118;

/// An entry of a list: a name with a note such as its type, and what it means.
pub(super) fn entry(name: &str, note: &str, meaning: &str) -> String {
    let note = if note.is_empty() {
        String::new()
    } else {
        format!(" ({note})")
    };
    wrapped(&format!("- **`{name}`**{note}: {}", linked(&sentence(meaning))), 2)
}

/// A text as a sentence: with a capital letter and a period.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let word = text.split_whitespace().next().unwrap_or_default();
    let is_plain = word
        .chars()
        .all(|symbol| symbol.is_ascii_lowercase() || symbol == ',' || symbol == ';');
    let period = if text.ends_with('.') { "" } else { "." };
    match text.split_at_checked(1) {
        Some((first, rest)) if is_plain => format!("{}{rest}{period}", first.to_ascii_uppercase()),
        _ => format!("{text}{period}"),
    }
}

/// Wraps a paragraph, or an item of a list with the blanks before it; lines after the first are indented.
pub(super) fn wrapped(text: &str, indent: usize) -> String {
    let blanks = text.len().saturating_sub(text.trim_start().len());
    let mut lines = " ".repeat(blanks);
    let mut length = blanks;
    for word in words(text) {
        let size = word.chars().count();
        if length > blanks && length + 1 + size > WIDTH {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            length = indent;
        } else if length > blanks {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(&word);
        length += size;
    }
    lines.push('\n');
    lines
}

/// The words of a text. Code between backticks is one word, and so is a link.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(last) if is_open => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) | None => words.push(word.to_owned()),
        }
        if word.matches('`').count() % 2 == 1 {
            is_open = !is_open;
        }
    }
    words
}

/// With names of documents, such as `docs/store.md#backups`, made links from the folder of the pages.
pub(super) fn linked(text: &str) -> String {
    let mut parts = text.split("docs/");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|symbol: char| !(symbol.is_ascii_alphanumeric() || "-_./#".contains(symbol)));
        let target = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        // A period that ends the sentence.
        let target = target.trim_end_matches('.');
        let (file, _) = target.split_once('#').unwrap_or((target, ""));
        if file.ends_with(".md") {
            let rest = part.strip_prefix(target).unwrap_or_default();
            linked.push_str(&format!("[{file}](../{target}){rest}"));
        } else {
            linked.push_str("docs/");
            linked.push_str(part);
        }
    }
    linked
}
