//! The rules for Kubernetes names: DNS labels and subdomains.
//!
//! Invariant: every name check in the gateway uses these functions.

/// Longest label, in bytes.
pub const LABEL_BYTES: usize = 63;
/// Longest subdomain, in bytes.
pub const SUBDOMAIN_BYTES: usize = 253;

/// Whether the text is a DNS label, as names of namespaces are: 1 to [`LABEL_BYTES`] bytes of
/// `a-z`, `0-9` and `-`, without `-` at either end.
///
/// Source: RFC 1123, section 2.1; Kubernetes, `IsDNS1123Label`.
pub fn is_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES && is_part(text)
}

/// Whether the text is a DNS subdomain, as names of most objects are: parts of `a-z`, `0-9` and
/// `-`, separated by dots, at most [`SUBDOMAIN_BYTES`] bytes in all. A part may be longer than a
/// label.
///
/// Source: RFC 1123, section 2.1; Kubernetes, `IsDNS1123Subdomain`.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_BYTES && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(known) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::{is_label, is_subdomain};

    #[test]
    fn labels() {
        assert!(is_label("a") && is_label("a-1") && is_label("0") && is_label(&"a".repeat(63)));
        for text in ["", "-a", "a-", "A", "a.b", "a_b", "ä", "a b", &"a".repeat(64)] {
            assert!(!is_label(text), "{text}");
        }
    }

    #[test]
    fn subdomains() {
        assert!(is_subdomain("a.b-c") && is_subdomain("a") && is_subdomain(&"a".repeat(253)));
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a-.b",
            "a.-b",
            "A",
            "a/b",
            &"a".repeat(254),
        ] {
            assert!(!is_subdomain(text), "{text}");
        }
    }
}
