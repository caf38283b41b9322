//! A plan that a guest returned at load: changes that the host applies natively to every message of
//! one direction.
//!
//! Security: a plan cannot change a field that the host owns.

use http::{HeaderMap, HeaderName, HeaderValue};

use tollgate_core::header_names::is_host_owned;

pub(super) const MAX_REMOVE: usize = 256;
pub(super) const MAX_PREFIXES: usize = 32;
pub(super) const MAX_SET: usize = 64;
/// Minimum bytes of a prefix. Shorter prefixes would remove far too many fields.
pub(super) const MIN_PREFIX_BYTES: usize = 3;

/// Fields to remove and to set, the same for every message.
///
/// Costs no call into the guest: with a dozen fields and a few dozen names it
/// takes well below half a microsecond (`benches/plugin.rs`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderPlan {
    pub(super) remove: Vec<HeaderName>,
    pub(super) remove_prefixes: Vec<String>,
    set: Vec<(HeaderName, HeaderValue)>,
    /// INVARIANT: has the bit of every name in `remove`.
    remove_filter: NameBloomFilter,
    /// INVARIANT: has the bit of the byte at [`PREFIX_BYTE`] of every prefix.
    prefix_mask: u64,
}

/// Index of the byte that distinguishes most prefixes; the first two are nearly always `x-`.
const PREFIX_BYTE: usize = MIN_PREFIX_BYTES - 1;

/// A 256-bit Bloom filter over header names. It rules out most names that are not in a list,
/// without comparing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NameBloomFilter([u64; 4]);

impl NameBloomFilter {
    fn add(&mut self, name: &str) {
        let (word, bit) = Self::bit_of(name);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn may_have(&self, name: &str) -> bool {
        let (word, bit) = Self::bit_of(name);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Hashes length, middle byte and last byte: only three loads, and distributed well enough.
    fn bit_of(name: &str) -> (usize, u64) {
        let bytes = name.as_bytes();
        let at = |index: usize| bytes.get(index).copied().map_or(0, usize::from);
        let hash =
            bytes.len().wrapping_mul(37) ^ at(bytes.len() / 2).wrapping_mul(11) ^ at(bytes.len().wrapping_sub(1));
        ((hash >> 6) & 3, 1 << (hash & 63))
    }
}

fn prefix_bit(text: &str) -> u64 {
    text.as_bytes().get(PREFIX_BYTE).map_or(0, |byte| 1 << (byte & 63))
}

impl HeaderPlan {
    /// Prefixes are lower case; those shorter than [`MIN_PREFIX_BYTES`] match nothing. Fields that
    /// the host owns are left alone, even if they are listed.
    pub(super) fn new(
        remove: Vec<HeaderName>,
        remove_prefixes: Vec<String>,
        set: Vec<(HeaderName, HeaderValue)>,
    ) -> Self {
        let remove: Vec<HeaderName> = remove.into_iter().filter(|name| !is_host_owned(name)).collect();
        let set: Vec<_> = set.into_iter().filter(|(name, _)| !is_host_owned(name)).collect();
        let mut remove_filter = NameBloomFilter::default();
        remove.iter().for_each(|name| remove_filter.add(name.as_str()));
        let prefix_mask = remove_prefixes.iter().fold(0, |mask, prefix| mask | prefix_bit(prefix));
        Self {
            remove,
            remove_prefixes,
            set,
            remove_filter,
            prefix_mask,
        }
    }

    /// Removes, then sets. Fields the host owns stay as they are.
    pub fn apply(&self, headers: &mut HeaderMap) {
        // Checking each present field is cheaper than looking up each listed name: messages have a
        // dozen fields, plans list more names than that.
        let doomed: Vec<HeaderName> = headers.keys().filter(|name| self.removes(name)).cloned().collect();
        for name in &doomed {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
    }

    fn removes(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        if self.remove_filter.may_have(text) && self.remove.contains(name) {
            return true;
        }
        self.prefix_mask & prefix_bit(text) != 0
            && self
                .remove_prefixes
                .iter()
                .any(|prefix| text.starts_with(prefix.as_str()))
            && !is_host_owned(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn plan(remove: &[&'static str], prefixes: &[&str], set: &[(&'static str, &'static str)]) -> HeaderPlan {
        HeaderPlan::new(
            remove.iter().map(|name| HeaderName::from_static(name)).collect(),
            prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            set.iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect(),
        )
    }

    fn check(plan: &HeaderPlan, before: &[(&'static str, &'static str)], after: &[(&'static str, &'static str)]) {
        let mut headers = map(before);
        plan.apply(&mut headers);
        assert_eq!(headers, map(after));
    }

    #[test]
    fn removes_every_value_of_a_name_and_nothing_else() {
        let plan = plan(&["x-api-key", "server"], &[], &[]);
        check(
            &plan,
            &[
                ("x-api-key", "1"),
                ("x-api-kez", "2"),
                ("x-api-key", "3"),
                ("server", "nginx"),
                ("accept", "*/*"),
            ],
            &[("x-api-kez", "2"), ("accept", "*/*")],
        );
    }

    #[test]
    fn removes_by_prefix_and_keeps_shorter_names() {
        let plan = plan(&[], &["x-auth-request-"], &[]);
        check(
            &plan,
            &[("x-auth-request-user", "eve"), ("x-auth-request", "kept")],
            &[("x-auth-request", "kept")],
        );
    }

    #[test]
    fn sets_after_removing_and_replaces_all_values() {
        let plan = plan(&["x-a"], &["x-a"], &[("x-a", "new"), ("x-b", "only")]);
        check(
            &plan,
            &[("x-a", "old"), ("x-b", "1"), ("x-b", "2")],
            &[("x-a", "new"), ("x-b", "only")],
        );
    }

    #[test]
    fn never_touches_fields_of_the_host() {
        let plan = plan(
            &["authorization"],
            &["author", "argocd-", "content-"],
            &[("argocd-username", "admin")],
        );
        let before = [
            ("authorization", "Bearer a"),
            ("argocd-username", "eve"),
            ("content-length", "3"),
        ];
        check(&plan, &before, &before);
        check(&plan, &[("content-type", "text/plain")], &[]);
    }

    #[test]
    fn ignores_prefixes_that_are_too_short() {
        let before = [("x-one", "1"), ("xy", "2")];
        check(&plan(&[], &["", "x", "x-"], &[]), &before, &before);
    }
}
