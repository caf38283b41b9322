//! Reads list fields of a header, and removes fields from it.

use http::{HeaderMap, HeaderName};

/// The items of all lines of the list field `name`, without blanks around them.
pub fn items<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = fields.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Whether the list field `name` has this item, in any case.
pub fn lists(fields: &HeaderMap, name: &HeaderName, item: &str) -> bool {
    items(fields, name).any(|one| one.eq_ignore_ascii_case(item))
}

/// Removes the fields whose names do not pass.
pub fn retain(fields: &mut HeaderMap, passes: impl Fn(&HeaderName) -> bool) {
    // Looking is cheaper than removing what is not there.
    let foreign: Vec<HeaderName> = fields.keys().filter(|name| !passes(name)).cloned().collect();
    for name in foreign {
        fields.remove(name);
    }
}
