//! Functions of texts and lists that the engine does not have, or does not have as OPA.

use regorus::Value;

use super::opa::{MAX_RANGE, integer, text, with_regex};

/// Go's `strings.Split` of a separator that is not empty, with the first or last so many pieces.
pub(super) fn split_n(arguments: &[Value]) -> Option<Value> {
    let [subject, separator, count] = arguments else {
        return None;
    };
    let (subject, separator, count) = (text(subject)?, text(separator)?, integer(count)?);
    if separator.is_empty() {
        return None;
    }
    let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let pieces = subject.split(separator);
    let pieces: Vec<Value> = if count >= 0 {
        pieces.take(most).map(Value::from).collect()
    } else {
        let all: Vec<&str> = pieces.collect();
        let dropped = all.len().saturating_sub(most);
        all.into_iter().skip(dropped).map(Value::from).collect()
    };
    Some(Value::from(pieces))
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
        for found in regex.captures_iter(subject).take(most) {
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
