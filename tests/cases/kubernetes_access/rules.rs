//! Parses the rules of `defaults.never_forwarded`. A rule that cannot be parsed is an error.

/// A rule about header fields that must not reach the API server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NeverForwarded {
    /// A field of this name.
    Name(String),
    /// A field whose name has this prefix.
    Prefix(String),
    /// A value that the client sent under a name with this prefix. The gateway may set its own.
    Sent(String),
    /// The field as the client sent it. The next hop has its own.
    Received(String),
    /// `Connection` and the fields it names, except on an upgrade.
    Connection,
}

impl NeverForwarded {
    /// Parses a rule.
    ///
    /// # Errors
    /// This suite does not know the rule's wording.
    pub(super) fn read(rule: &str) -> Result<Self, String> {
        let is_name = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !text.is_empty() && text.bytes().all(plain)
        };
        if rule.starts_with("connection and every header it names") {
            return Ok(Self::Connection);
        }
        let unknown = || format!("defaults.never_forwarded: `{rule}` is unknown");
        if let Some(name) = rule.strip_suffix(" sent by the client") {
            let name = name.trim_end_matches('*');
            return is_name(name).then(|| Self::Sent(name.to_owned())).ok_or_else(unknown);
        }
        if let Some(name) = rule.strip_suffix(" as received") {
            return is_name(name)
                .then(|| Self::Received(name.to_owned()))
                .ok_or_else(unknown);
        }
        let (name, rule) = match rule.strip_suffix('*') {
            Some(prefix) => (prefix, Self::Prefix(prefix.to_owned())),
            None => (rule, Self::Name(rule.to_owned())),
        };
        is_name(name).then_some(rule).ok_or_else(unknown)
    }
}
