//! Functions of texts and lists that the engine does not have, or does not have as OPA.

use regorus::Value;

use super::opa::{MAX_RANGE, MAX_TEXT_BYTES, bounded, integer, text, with_regex};

/// Go's `strings.Split`: an empty separator is between all letters.
fn pieces<'a>(text: &'a str, separator: &'a str) -> Vec<&'a str> {
    let is_letter = |piece: &&str| !separator.is_empty() || !piece.is_empty();
    text.split(separator).filter(is_letter).collect()
}

pub(super) fn split(arguments: &[Value]) -> Option<Value> {
    let [subject, separator] = arguments else { return None };
    let pieces = pieces(text(subject)?, text(separator)?);
    Some(pieces.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

/// `split` with the first or last so many pieces.
pub(super) fn split_n(arguments: &[Value]) -> Option<Value> {
    let [subject, separator, count] = arguments else {
        return None;
    };
    let (mut pieces, count) = (pieces(text(subject)?, text(separator)?), integer(count)?);
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= 0 {
        pieces.truncate(most);
    } else {
        pieces.drain(..pieces.len().saturating_sub(most));
    }
    Some(pieces.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

/// Go's `Regexp.ReplaceAllString`, for a replacement that [`has_plain_groups`]. `None` also for a text of more
/// than [`MAX_TEXT_BYTES`].
pub(super) fn regex_replace(arguments: &[Value]) -> Option<Value> {
    let [subject, pattern, replacement] = arguments else {
        return None;
    };
    let (subject, replacement) = (text(subject)?, text(replacement)?);
    if !has_plain_groups(replacement) {
        return None;
    }
    let replace = |regex: &regex::Regex| {
        let (mut result, mut copied) = (String::new(), 0);
        for found in bounded(regex.captures_iter(subject), subject.len(), end) {
            let found = found?;
            let whole = found.get(0)?;
            result.push_str(subject.get(copied..whole.start())?);
            found.expand(replacement, &mut result);
            copied = whole.end();
            if result.len() > MAX_TEXT_BYTES {
                return None;
            }
        }
        result.push_str(subject.get(copied..)?);
        (result.len() <= MAX_TEXT_BYTES).then(|| Value::from(result))
    };
    with_regex(text(pattern)?, replace)?
}

/// Whether each `$` of a replacement is one that Go and the library here read alike: `$$`, `$1` or `${1}`.
/// Compiled patterns have no names of groups.
pub(crate) fn has_plain_groups(replacement: &str) -> bool {
    // What is a part of a name for Go.
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || !letter.is_ascii();
    let mut rest = replacement;
    while let Some((_, after)) = rest.split_once('$') {
        if let Some(after) = after.strip_prefix('$') {
            rest = after;
            continue;
        }
        let group = match after.strip_prefix('{') {
            Some(braced) => braced.split_once('}'),
            None => Some(after.split_at(after.find(|letter| !is_name(letter)).unwrap_or(after.len()))),
        };
        let Some((number, after)) = group else { return false };
        let is_number = match number.as_bytes() {
            [digit] => digit.is_ascii_digit(),
            [b'1'..=b'9', digit] => digit.is_ascii_digit(),
            _ => false,
        };
        if !is_number {
            return false;
        }
        rest = after;
    }
    true
}

/// Go's `strings.Replacer`: at each place the first pair that is there, in the order of what is replaced.
pub(super) fn replace_n(arguments: &[Value]) -> Option<Value> {
    let [Value::Object(pairs), subject] = arguments else {
        return None;
    };
    let pairs = pairs.iter_sorted().map(|(old, new)| Some((text(old)?, text(new)?)));
    let pairs = pairs.collect::<Option<Vec<_>>>()?;
    if pairs.iter().any(|(old, _)| old.is_empty()) {
        return None;
    }
    let (mut rest, mut result) = (text(subject)?, String::new());
    while let Some(letter) = rest.chars().next() {
        let pair = pairs
            .iter()
            .find_map(|(old, new)| Some((rest.strip_prefix(old)?, *new)));
        if let Some((after, new)) = pair {
            result.push_str(new);
            rest = after;
        } else {
            result.push(letter);
            rest = rest.get(letter.len_utf8()..)?;
        }
    }
    Some(Value::from(result))
}

pub(super) fn flatten(arguments: &[Value]) -> Option<Value> {
    let [Value::Array(items)] = arguments else { return None };
    let mut flat = Vec::new();
    for item in items.iter() {
        match item {
            Value::Array(items) => flat.extend(items.iter().cloned()),
            item => flat.push(item.clone()),
        }
    }
    Some(Value::from(flat))
}

/// Where a match ends.
fn end(found: &regex::Captures<'_>) -> usize {
    found.get(0).map_or(0, |found| found.end())
}

/// `None` also for more than [`MAX_RANGE`] texts.
pub(super) fn find_all_submatches(arguments: &[Value]) -> Option<Value> {
    let [pattern, subject, most] = arguments else {
        return None;
    };
    let (subject, most) = (text(subject)?, integer(most)?);
    // A negative number means all.
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let find = |regex: &regex::Regex| {
        let allowed = usize::try_from(MAX_RANGE).ok()?.checked_div(regex.captures_len())?;
        let mut all = Vec::new();
        for found in bounded(regex.captures_iter(subject).take(most), subject.len(), end) {
            let found = found?;
            if all.len() >= allowed {
                return None;
            }
            let groups = found
                .iter()
                .map(|group| Value::from(group.map_or("", |group| group.as_str())));
            all.push(Value::from(groups.collect::<Vec<_>>()));
        }
        Some(Value::from(all))
    };
    with_regex(text(pattern)?, find)?
}

#[cfg(test)]
mod tests {
    use super::has_plain_groups;

    #[test]
    fn groups_that_are_read_otherwise_are_known() {
        for replacement in [
            "", "a", "$$", "$$a", "$0", "$1-$2", "${1}", "<${12}>", "${1}a", "$1$2$$", "$99.",
        ] {
            assert!(has_plain_groups(replacement), "{replacement}");
        }
        for replacement in [
            "$", "a$", "$a", "$1a", "$1_", "$1é", "${1}a$", "$01", "${01}", "${a}", "${1", "${}", "$123", "$-", "$ 1",
            "$$$",
        ] {
            assert!(!has_plain_groups(replacement), "{replacement}");
        }
    }
}
