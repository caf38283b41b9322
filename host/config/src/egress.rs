//! Hosts that a plugin may reach, as an operator writes them.

use core::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;

/// An entry as an operator writes it: a text or an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
// The derived function reads the object.
#[serde(remote = "Self", deny_unknown_fields)]
#[schemars(transform = accept_text)]
pub struct EgressEntry {
    /// Host name, `*.` followed by a suffix (`*` is exactly one label), or IP address; `:port` may follow.
    pub host: String,
    /// Port, 1 to 65535. Defaults to 443.
    pub port: Option<u16>,
    /// Whether private addresses are permitted (RFC 1918, fc00::/7).
    #[serde(default)]
    pub private: bool,
    /// Whether loopback addresses are permitted (127.0.0.0/8, ::1); only with an IP address or `localhost` as
    /// `host`.
    #[serde(default)]
    pub loopback: bool,
    /// PEM text, or path of a PEM file, with the only certificate authorities trusted for this host. Defaults
    /// to the system's.
    pub ca: Option<String>,
}

fn accept_text(schema: &mut schemars::Schema) {
    let object = std::mem::take(schema);
    *schema = schemars::json_schema!({"anyOf": [{"type": "string"}, object]});
}

impl<'de> Deserialize<'de> for EgressEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EgressEntryVisitor)
    }
}

struct EgressEntryVisitor;

impl<'de> serde::de::Visitor<'de> for EgressEntryVisitor {
    type Value = EgressEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a host, or an object with host, port, private, loopback and ca")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<EgressEntry, E> {
        Ok(EgressEntry {
            host: text.to_owned(),
            ..EgressEntry::default()
        })
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<EgressEntry, A::Error> {
        EgressEntry::deserialize(MapAccessDeserializer::new(map))
    }
}
