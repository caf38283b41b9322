//! Reads the head of a table: the world around the gateway, and defaults for every request.
//! Unknown fields and rules are errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use strum::VariantArray;
use tollgate_core::user::Role;

use super::rules::NeverForwarded;
use crate::suite::Table;

/// The validated head of a table.
pub(super) struct Head {
    /// Expectations for every request.
    pub(super) defaults: Defaults,
    /// Everything around the gateway, before any change.
    pub(super) world: World,
    /// The world as JSON, to which changes are applied by path.
    written: Value,
    /// The agent that the cases configure: the first one.
    pub(super) agent: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHead {
    schema_version: u32,
    #[serde(rename = "about")]
    _about: IgnoredAny,
    conventions: Conventions,
    defaults: RawDefaults,
    world: Value,
}

/// Conventions of the table, mostly explanations for readers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conventions {
    #[serde(rename = "placeholders")]
    _placeholders: Option<String>,
    #[serde(rename = "header_names")]
    _header_names: Option<String>,
    #[serde(rename = "impersonate")]
    _impersonate: Option<String>,
    identity: BTreeMap<String, String>,
    #[serde(rename = "absent")]
    _absent: Option<String>,
    #[serde(rename = "indistinguishable_group")]
    _indistinguishable_group: Option<String>,
    #[serde(rename = "steps")]
    _steps: Option<String>,
    #[serde(rename = "order_of_checks")]
    _order_of_checks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDefaults {
    never_forwarded: Vec<String>,
    always_set: Vec<(String, String)>,
    gateway_error: GatewayError,
}

/// Expectations for every request.
pub(super) struct Defaults {
    /// Rules about fields that must not reach the API server.
    pub(super) never_forwarded: Vec<NeverForwarded>,
    /// Fields that every forwarded request has exactly once.
    pub(super) always_set: Vec<(String, String)>,
    /// Format of the gateway's own errors.
    pub(super) gateway_error: GatewayError,
}

/// Format of the gateway's own errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GatewayError {
    /// `Content-Type`.
    pub(super) content_type: String,
    /// Additional header fields of a 401.
    pub(super) on_401_header: BTreeMap<String, String>,
    #[serde(rename = "message")]
    _message: Option<String>,
}

/// Everything around the gateway.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct World {
    /// The current time.
    pub(super) now: Timestamp,
    url_prefix: String,
    /// Origins of pages that may send requests.
    pub(super) allowed_origins: Vec<String>,
    /// The issuer of ID tokens.
    pub(super) oidc: Oidc,
    /// How long decisions are cached.
    pub(super) cache: Ttl,
    roles: Roles,
    groups: BTreeMap<String, i64>,
    projects: BTreeMap<String, i64>,
    /// People by name.
    pub(super) users: BTreeMap<String, Person>,
    /// Agents by number.
    pub(super) agents: BTreeMap<String, AgentEntry>,
    /// Agents' configurations by name.
    pub(super) configs: BTreeMap<String, Value>,
}

/// The issuer of ID tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Oidc {
    /// `iss`.
    pub(super) issuer: String,
    /// Audiences of the gateway.
    pub(super) audiences: Vec<String>,
    /// The claim that contains the agent's number.
    pub(super) agent_claim: String,
    /// Accepted algorithms.
    pub(super) algs: Vec<String>,
    /// Keys by id, and when they are in the JWKS.
    pub(super) keys: BTreeMap<String, Published>,
}

/// When a key is in the JWKS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Published {
    /// From the beginning.
    #[serde(rename = "in JWKS")]
    Always,
    /// After the gateway has fetched the JWKS once.
    #[serde(rename = "added to JWKS after the first fetch")]
    Later,
}

/// How long decisions are cached, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ttl {
    pub(super) success_ttl_s: u64,
    pub(super) error_ttl_s: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Roles {
    ladder: Vec<Role>,
    minimum: Role,
    emit_from: Role,
    #[serde(rename = "note")]
    _note: Option<String>,
}

/// A person.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Person {
    /// Number in the directory.
    pub(super) id: i64,
    members: BTreeMap<String, Role>,
    state: Option<String>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentEntry {
    /// Its name.
    pub(super) name: String,
    /// The project that contains its configuration.
    pub(super) config_project_id: i64,
    /// Name of its configuration in `configs`, unless a case configures it.
    pub(super) config: String,
}

/// Whether this suite runs the cases of a table.
pub(super) fn is_access_table(table: &Table) -> bool {
    let has = |section: &str, key: &str| {
        table
            .head
            .get(section)
            .is_some_and(|section| section.get(key).is_some())
    };
    has("world", "url_prefix") && has("conventions", "impersonate")
}

impl Head {
    /// Reads the head of a table.
    ///
    /// # Errors
    /// The head contains something that this suite or the gateway does not support.
    pub(super) fn read(table: &Table) -> Result<Self, String> {
        let raw: RawHead =
            serde_json::from_value(Value::Object(table.head.clone())).map_err(|error| format!("head: {error}"))?;
        if raw.schema_version != 1 {
            return Err(format!("schema_version is {}, expected 1", raw.schema_version));
        }
        let identities: BTreeSet<&str> = raw.conventions.identity.keys().map(String::as_str).collect();
        if identities != BTreeSet::from(["impersonated", "service_account"]) {
            return Err(format!("conventions.identity: unknown words in {identities:?}"));
        }
        let never_forwarded = raw
            .defaults
            .never_forwarded
            .iter()
            .map(|rule| NeverForwarded::read(rule));
        let world = World::read(&raw.world)?;
        Ok(Self {
            defaults: Defaults {
                never_forwarded: never_forwarded.collect::<Result<_, _>>()?,
                always_set: raw.defaults.always_set,
                gateway_error: raw.defaults.gateway_error,
            },
            world,
            written: raw.world,
            agent: first_agent(&table.path)?,
        })
    }

    /// The world after changes. Each change is a path with dots, and a value.
    ///
    /// # Errors
    /// A path does not exist, or the changed world is invalid.
    pub(super) fn changed(&self, changes: &[(String, Value)]) -> Result<World, String> {
        let mut written = self.written.clone();
        for (path, value) in changes {
            let mut at = &mut written;
            let (parent, last) = path.rsplit_once('.').ok_or(format!("`{path}` has no dot"))?;
            for key in parent.split('.') {
                at = at
                    .get_mut(key)
                    .ok_or_else(|| format!("`{path}`: there is no `{key}`"))?;
            }
            let mapping = at
                .as_object_mut()
                .ok_or(format!("`{path}`: the parent is not a mapping"))?;
            // Null removes the member.
            match value {
                Value::Null => mapping.remove(last),
                value => mapping.insert(last.to_owned(), value.clone()),
            };
        }
        World::read(&written)
    }
}

impl World {
    fn read(written: &Value) -> Result<Self, String> {
        let world: Self = serde_json::from_value(written.clone()).map_err(|error| format!("world: {error}"))?;
        if world.url_prefix != "/k8s-proxy/" {
            return Err(format!(
                "url_prefix `{}`: the gateway has `/k8s-proxy/`",
                world.url_prefix
            ));
        }
        let roles = &world.roles;
        let fixed = (Role::VARIANTS, Role::Developer, Role::Reporter);
        if (roles.ladder.as_slice(), roles.minimum, roles.emit_from) != fixed {
            return Err(
                "roles: the gateway has guest to owner, `minimum` developer and `emit_from` reporter".to_owned(),
            );
        }
        Ok(world)
    }

    /// `spec` of the `UserDirectory`.
    ///
    /// # Errors
    /// A user is a member of an unknown group or project.
    pub(super) fn directory(&self) -> Result<Value, String> {
        let mut members: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        let mut users = Vec::new();
        for (username, person) in &self.users {
            let mut user = json!({"id": person.id, "username": username});
            if let Some(state) = &person.state {
                user["state"] = state.as_str().into();
            }
            users.push(user);
            for (path, role) in &person.members {
                if !self.groups.contains_key(path) && !self.projects.contains_key(path) {
                    return Err(format!("`{username}` is a member of unknown `{path}`"));
                }
                let member = json!({"username": username, "role": role.as_ref()});
                members.entry(path).or_default().push(member);
            }
        }
        let list = |places: &BTreeMap<String, i64>| {
            let entry = |(path, id): (&String, &i64)| {
                let members = members.get(path.as_str()).cloned().unwrap_or_default();
                json!({"id": id, "path": path, "members": members})
            };
            places.iter().map(entry).collect::<Vec<_>>()
        };
        Ok(json!({"users": users, "groups": list(&self.groups), "projects": list(&self.projects)}))
    }

    /// The number of a project or group. If the world does not have it, the number at the end of
    /// its path is used.
    pub(super) fn number_of(&self, path: &str) -> Option<i64> {
        let known = self.projects.get(path).or_else(|| self.groups.get(path)).copied();
        known.or_else(|| path.rsplit_once('-')?.1.parse().ok())
    }
}

/// The first agent in the order of the file, which JSON maps lose.
fn first_agent(path: &Path) -> Result<String, String> {
    #[derive(Deserialize)]
    struct File {
        world: Ordered,
    }
    #[derive(Deserialize)]
    struct Ordered {
        agents: First,
    }
    struct First(Option<String>);
    impl<'de> Deserialize<'de> for First {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Keys)
        }
    }
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = First;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("agents by number")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<First, A::Error> {
            let mut first = None;
            while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
                first.get_or_insert(key);
            }
            Ok(First(first))
        }
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let file: File = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
    file.world.agents.0.ok_or_else(|| "the world has no agents".to_owned())
}
