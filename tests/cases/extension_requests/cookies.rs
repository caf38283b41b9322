//! Builds the session cookies that a case describes, with a real token.

use std::collections::BTreeMap;

const NAME: &str = "argocd.token";

/// The `Cookie` line for `cookies`, with `token` instead of the session, in the same number of
/// chunks. If chunks of the session are missing, it is sent unchanged.
pub(super) fn line(cookies: &BTreeMap<String, String>, token: &str) -> String {
    let mut sent = cookies.clone();
    if let Some(chunks) = chunks(cookies) {
        let length = token.len().div_ceil(chunks);
        let mut parts = token.as_bytes().chunks(length);
        for index in 0..chunks {
            let part = String::from_utf8_lossy(parts.next().unwrap_or_default());
            match (index, chunks) {
                (0, 1) => sent.insert(NAME.to_owned(), part.into_owned()),
                (0, _) => sent.insert(NAME.to_owned(), format!("{chunks}:{part}")),
                (_, _) => sent.insert(format!("{NAME}-{index}"), part.into_owned()),
            };
        }
    }
    let pairs: Vec<String> = sent.iter().map(|(name, value)| format!("{name}={value}")).collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!("Cookie: {}\r\n", pairs.join("; ")),
    }
}

/// The number of chunks of the session, if it is complete.
fn chunks(cookies: &BTreeMap<String, String>) -> Option<usize> {
    let Some((count, _)) = cookies.get(NAME)?.split_once(':') else {
        return Some(1);
    };
    let count = count.parse().ok().filter(|count| *count > 0)?;
    let whole = (1..count).all(|index| cookies.contains_key(&format!("{NAME}-{index}")));
    whole.then_some(count)
}
