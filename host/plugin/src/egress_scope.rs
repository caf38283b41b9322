//! Decides which hosts a secret may be sent to, from the manifest and the cluster's configuration.
//!
//! Security: combining secrets never widens the set of allowed hosts.
//!
//! Invariant: a secret that is revoked keeps its hosts until `revoke` has been called.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use url::Host;

use crate::egress::HostPortPattern;

/// A host as a manifest writes it: `auth.example.com`, `*.example.com`,
/// `vault.example.com:8200`, `sts.{region}.amazonaws.com`, `{endpoint}` (a URL of
/// the configuration), or `*` for every host that is granted.
#[derive(Clone, Debug, derive_more::Display)]
pub(crate) struct HostTemplate(TextTemplate);

/// A text with members of the configuration in it, such as a path.
#[derive(Clone, Debug)]
pub(crate) struct TextTemplate(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    /// Members of the configuration, outermost first.
    Field(Vec<String>),
}

impl TextTemplate {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((plain, tail)) = rest.split_once('{') {
            let (field, tail) = tail.split_once('}').ok_or("`{` without `}`")?;
            let good = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !field.split('.').all(good) {
                return Err("between braces stands a member of the configuration, such as `{region}`");
            }
            pieces.push(Piece::Text(plain.to_owned()));
            pieces.push(Piece::Field(field.split('.').map(str::to_owned).collect()));
            rest = tail;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
        Ok(Self(pieces))
    }

    /// The text for `config`. `None` if a member is missing.
    pub(crate) fn expand(&self, config: &Value) -> Option<String> {
        self.fill(config, Some)
    }

    /// `checked` decides whether a member may stand in the text.
    fn fill<'a>(&self, config: &'a Value, checked: impl Fn(&'a str) -> Option<&'a str>) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Field(path) => text.push_str(checked(member(config, path)?)?),
            }
        }
        Some(text)
    }
}

impl fmt::Display for TextTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(plain) => f.write_str(plain),
            Piece::Field(path) => write!(f, "{{{}}}", path.join(".")),
        })
    }
}

impl HostTemplate {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let template = Self(TextTemplate::parse(text)?);
        // A template with members can be judged only with a configuration.
        let plain = template.0.0.iter().all(|piece| matches!(piece, Piece::Text(_)));
        if plain && template.expand(&Value::Null).is_none() {
            return Err("not a host: write `name`, `*.name`, `name:port` or `*`");
        }
        Ok(template)
    }

    /// The host for `config`. `None` if a member is missing or the result is not a host.
    pub(crate) fn expand(&self, config: &Value) -> Option<HostMatcher> {
        HostMatcher::parse(&self.fill_placeholders(config)?)
    }

    /// The host for `config` as an operator writes it in a grant: `*`, or a host with a port other
    /// than 443.
    pub(crate) fn expand_text(&self, config: &Value) -> Option<String> {
        let text = self.fill_placeholders(config)?;
        HostMatcher::parse(&text)?;
        Some(text)
    }

    fn fill_placeholders(&self, config: &Value) -> Option<String> {
        // SECURITY: only the manifest may write a wildcard. A URL is accepted only as the whole
        // template, because `{region}.example.com` would otherwise become any host that `region`
        // begins with.
        let single = matches!(self.0.0.as_slice(), [Piece::Field(_)]);
        let label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let good = |text: &str| !text.contains('*') && (single || text.bytes().all(label));
        let text = self.0.fill(config, |member| good(member).then_some(member))?;
        match (single, text.strip_prefix("https://")) {
            (true, Some(url)) => Some(url.split(['/', '?', '#']).next()?.to_owned()),
            (_, _) => Some(text),
        }
    }
}

fn member<'a>(config: &'a Value, path: &[String]) -> Option<&'a str> {
    path.iter()
        .try_fold(config, |value, name| value.get(name))
        .and_then(Value::as_str)
}

/// Matches any granted host, or only those of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostMatcher {
    Any,
    /// One host, or those one label below a name.
    Only(HostPortPattern),
}

impl HostMatcher {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        HostPortPattern::parse(text).ok().map(Self::Only)
    }

    pub(crate) fn matches(&self, host: &Host<String>, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Only(pattern) => pattern.matches(host, port),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EgressScope {
    /// A host must be in every list.
    lists: Vec<Arc<[HostMatcher]>>,
    cluster: bool,
}

impl EgressScope {
    /// Allows `hosts`; `cluster` says whether it may become part of the credential.
    pub(crate) fn new(hosts: Arc<[HostMatcher]>, cluster: bool) -> Self {
        Self {
            lists: vec![hosts],
            cluster,
        }
    }

    /// Allows nothing: the secret can be used only as a key.
    pub(crate) fn none() -> Self {
        Self::new(Arc::new([]), false)
    }

    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let mut lists = self.lists.clone();
        for list in &other.lists {
            if !lists.iter().any(|known| Arc::ptr_eq(known, list)) {
                lists.push(Arc::clone(list));
            }
        }
        Self {
            lists,
            cluster: self.cluster && other.cluster,
        }
    }

    pub(crate) fn allows_host(&self, host: &Host<String>, port: u16) -> bool {
        self.lists
            .iter()
            .all(|list| list.iter().any(|pattern| pattern.matches(host, port)))
    }

    /// A line for [`Self::parse_line`]: `+` or `-` for the cluster, then the lists.
    pub(crate) fn to_line(&self) -> String {
        let pattern = |pattern: &HostMatcher| match pattern {
            HostMatcher::Any => "*".to_owned(),
            HostMatcher::Only(pattern) => pattern.to_string(),
        };
        let list = |list: &Arc<[HostMatcher]>| list.iter().map(pattern).collect::<Vec<_>>().join(" ");
        let lists: Vec<String> = self.lists.iter().map(list).collect();
        format!("{}{}", if self.cluster { '+' } else { '-' }, lists.join("|"))
    }

    /// Parses the output of [`Self::to_line`]. `None` for any other text.
    pub(crate) fn parse_line(line: &str) -> Option<Self> {
        let (cluster, lists) = match line.strip_prefix('+') {
            Some(lists) => (true, lists),
            None => (false, line.strip_prefix('-')?),
        };
        let list =
            |list: &str| -> Option<Arc<[HostMatcher]>> { list.split_whitespace().map(HostMatcher::parse).collect() };
        let lists = lists.split('|').map(list).collect::<Option<Vec<_>>>()?;
        Some(Self { lists, cluster })
    }

    pub(crate) fn allows_cluster(&self) -> bool {
        self.cluster
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template_matches(template: &str, config: &Value, host: &str, port: u16) -> bool {
        let pattern = HostTemplate::parse(template).unwrap().expand(config);
        pattern.is_some_and(|pattern| pattern.matches(&Host::parse(host).unwrap(), port))
    }

    #[test]
    fn host_templates_expand_values_of_the_configuration() {
        let config = json!({
            "region": "us-west-2", "endpoint": "https://IDP.example.com:8443/token", "evil": "a.b/c",
            "url": "https://evil.example/", "user": "https://a@evil.example/", "star": "*", "stars": "*.example.com",
            "port": "evil.example:443", "back": "https://evil.example\\.x",
        });
        for (template, host, port, expected) in [
            ("auth.example.com", "auth.example.com", 443, true),
            ("auth.example.com", "auth.example.com", 8443, false),
            ("auth.example.com:8443", "auth.example.com", 8443, true),
            ("*.example.com", "a.example.com", 443, true),
            ("*.example.com", "a.b.example.com", 443, false),
            ("*.example.com", "example.com", 443, false),
            ("sts.{region}.amazonaws.com", "sts.us-west-2.amazonaws.com", 443, true),
            ("sts.{region}.amazonaws.com", "sts.us-east-1.amazonaws.com", 443, false),
            ("{endpoint}", "idp.example.com", 8443, true),
            ("{endpoint}", "idp.example.com", 443, false),
            ("{missing}", "idp.example.com", 443, false),
            ("x.{evil}.example.com", "x.a.b", 443, false),
            ("*", "anything.example.com", 1, true),
            // A value must not move a template to another domain or make it a wildcard.
            ("{url}.cloud.example", "evil.example", 443, false),
            ("{url}", "evil.example", 443, true),
            ("x{url}", "evil.example", 443, false),
            ("{user}", "evil.example", 443, false),
            ("{back}", "evil.example", 443, false),
            ("{star}", "evil.example", 443, false),
            ("{star}.example.com", "a.example.com", 443, false),
            ("{stars}", "a.example.com", 443, false),
            ("{port}", "evil.example", 443, true),
            ("{port}.cloud.example", "evil.example", 443, false),
        ] {
            assert_eq!(
                template_matches(template, &config, host, port),
                expected,
                "{template} {host}:{port}"
            );
        }
        for bad in ["a/b", "a@b", "{", "{a-b}", "", "a b"] {
            assert!(HostTemplate::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn combined_secrets_may_only_go_where_each_may_go() {
        let list = |text: &str| -> Arc<[HostMatcher]> { Arc::new([HostMatcher::parse(text).unwrap()]) };
        let (a, both) = (
            EgressScope::new(list("a.example"), true),
            EgressScope::new(list("*.example"), false),
        );
        let joined = a.intersect(&both);
        let host = |text: &str| Host::parse(text).unwrap();
        assert!(joined.allows_host(&host("a.example"), 443) && a.allows_cluster());
        assert!(!joined.allows_host(&host("b.example"), 443) && both.allows_host(&host("b.example"), 443));
        assert!(!joined.allows_cluster());
        assert!(!EgressScope::none().allows_host(&host("a.example"), 443));
    }

    #[test]
    fn an_egress_scope_survives_a_round_trip() {
        let list = |texts: &[&str]| -> Arc<[HostMatcher]> {
            texts.iter().map(|text| HostMatcher::parse(text).unwrap()).collect()
        };
        let narrow = EgressScope::new(list(&["a.example", "*.b.example:8443", "[2001:db8::1]:444"]), true);
        for egress_scope in [
            narrow.clone(),
            narrow.intersect(&EgressScope::new(list(&["*"]), false)),
            EgressScope::none(),
        ] {
            let again = EgressScope::parse_line(&egress_scope.to_line()).unwrap();
            assert_eq!((again.lists, again.cluster), (egress_scope.lists, egress_scope.cluster));
        }
        assert!(
            EgressScope::parse_line("a.example").is_none()
                && EgressScope::parse_line("+a b/c").is_none()
                && EgressScope::parse_line("").is_none()
        );
    }
}
