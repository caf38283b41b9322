//! Reads the query parameters that decide which verb a request has.
//!
//! Security: pairs that Go's `net/url` drops are dropped here too, so both sides see one verb.
//!
//! Source: Go's `url.ParseQuery`; `k8s.io/apimachinery`, conversion of query
//! parameters and `fields.ParseSelector`.

use percent_encoding::percent_decode;

/// Most pairs that Go reads, counting empty ones.
const MAX_PAIRS: usize = 10_000;

/// The query parameters of a list request that change its verb or name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListOptions {
    pub(super) watch: bool,
    /// The one object that `fieldSelector` selects.
    pub(super) name: Option<String>,
}

impl ListOptions {
    /// Reads them as kube-apiserver does before it authorizes. A label selector that it cannot read
    /// is not detected here: it answers such a list with 400.
    pub(super) fn read(query: &str) -> Self {
        let first = |name: &str| pairs(query).find(|(key, _)| key == name).map(|(_, value)| value);
        let watch = first("watch").is_some_and(|value| is_true(&value));
        let number_is_bad = |name: &str| first(name).is_some_and(|value| value.parse::<i64>().is_err());
        // kube-apiserver discards all options if one does not decode, and then reads `watch` from the query itself.
        if number_is_bad("limit") || number_is_bad("timeoutSeconds") {
            return Self { watch, name: None };
        }
        let name = first("fieldSelector")
            .and_then(|selector| selected_name(&selector))
            // kube-apiserver ignores a name that could not stand in a path.
            .filter(|name| is_path_segment(name));
        Self { watch, name }
    }
}

/// The pairs that Go finds. Pairs with a `;` or a broken escape are dropped; a query with too many
/// pairs has none.
fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    let is_short = query.split('&').count() <= MAX_PAIRS;
    let is_read = move |pair: &&str| is_short && !pair.is_empty() && !pair.contains(';');
    query.split('&').filter(is_read).filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescaped(key)?, unescaped(value)?))
    })
}

fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    pieces.next();
    let escape = |piece: &str| matches!(piece.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    if !pieces.all(escape) {
        return None;
    }
    let spaced = text.replace('+', " ");
    Some(percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned())
}

/// Everything except `0` and `false` is true, an empty value too.
fn is_true(value: &str) -> bool {
    // Go folds case by Unicode's rules, under which `ſ` is an `s`.
    let folded = value
        .chars()
        .map(|c| if c == 'ſ' { 's' } else { c.to_ascii_lowercase() });
    value != "0" && !folded.eq("false".chars())
}

fn selected_name(selector: &str) -> Option<String> {
    let mut name = None;
    // With several, the API server takes the first in sorted order.
    let mut terms = terms(selector);
    terms.sort_unstable();
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let (field, demands, value) = split_term(term)?;
        // A term that cannot be read invalidates the whole selector.
        let value = unescaped_value(value)?;
        if demands && field == "metadata.name" && name.is_none() {
            name = Some(value);
        }
    }
    name.filter(|name| !name.is_empty())
}

/// Splits at commas, except those after a backslash.
fn terms(selector: &str) -> Vec<&str> {
    let mut escaped = false;
    let cut = |c: char| {
        let cuts = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        cuts
    };
    selector.split(cut).collect()
}

/// Field, whether it must have the value, and the value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term
        .char_indices()
        .find(|(at, c)| *c == '=' || (*c == '!' && term.get(at + 1..).is_some_and(|rest| rest.starts_with('='))));
    let (field, behind) = term.split_at(at?.0);
    if let Some(value) = behind.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = behind.strip_prefix("==").or_else(|| behind.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescaped_value(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(chars.next().filter(|c| ['\\', ',', '='].contains(c))?),
            ',' | '=' => return None,
            c => plain.push(c),
        }
    }
    Some(plain)
}

fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}
