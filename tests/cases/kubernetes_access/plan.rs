//! The configuration of the gateway that a case needs: settings, state and policy. Cases with the
//! same [`Plan`] share one gateway.

use std::net::SocketAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::case::{Authentication, ConfigChoice, Credential, Inline, Policy, PolicyKind, Question, UpstreamError};
use super::cluster::{Cluster, SA_TOKEN};
use super::table::{Head, World};
use test_support::world::{CONTROL_PLANE, SESSION_KEY, object};

/// The account that may list and revoke all sessions.
pub(super) const OPERATOR: &str = "operator";

/// The parts of a gateway's configuration in which cases differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The agent that the case configures.
    agent: String,
    /// Its configuration.
    config: Config,
    /// Project of the configuration, if it is not the world's.
    config_project: Option<i64>,
    authentication: Option<Authentication>,
    policy: Option<Policy>,
    authorizer: Authorizer,
    pub(super) api_server: ApiServerState,
}

/// The configuration of the case's agent.
#[derive(Clone, Debug, PartialEq)]
enum Config {
    /// The world's configuration of this name, which may change during a sequence.
    Named(String),
    Own(Value),
}

/// Who authorizes access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authorizer {
    /// The gateway.
    Embedded,
    /// The platform.
    Remote,
}

/// Whether the API server accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiServerState {
    Listening,
    Refusing,
}

impl Plan {
    /// The plan for a case.
    ///
    /// # Errors
    /// The world does not have the case's configuration.
    pub(super) fn of(question: &Question, head: &Head) -> Result<Self, String> {
        let inline = match &question.config {
            ConfigChoice::Inline(inline) => inline.clone(),
            ConfigChoice::Ref(name) => named(&head.world, name)?,
        };
        let mapped = question.steps.iter().any(|step| step.impersonate_groups.is_some());
        let (inline, config) = match &question.config {
            _ if mapped => {
                let inline = mapping(&inline, &head.world);
                let config = Config::Own(sections(&inline));
                (inline, config)
            }
            ConfigChoice::Ref(name) => (inline, Config::Named(name.clone())),
            ConfigChoice::Inline(_) => {
                let config = Config::Own(sections(&inline));
                (inline, config)
            }
        };
        let platform =
            question.backend.is_some() || question.expect.backend_called.is_some() || is_job(&question.credential);
        Ok(Self {
            agent: head.agent.clone(),
            config,
            config_project: inline.config_project_id,
            authentication: inline.authentication,
            policy: inline.policy,
            authorizer: if platform {
                Authorizer::Remote
            } else {
                Authorizer::Embedded
            },
            api_server: match question.upstream_reply.error {
                None => ApiServerState::Listening,
                Some(UpstreamError::Refused) => ApiServerState::Refusing,
            },
        })
    }

    /// The agent's number, the number of its project, and its section `ci_access`.
    pub(super) fn jobs(&self, world: &World) -> Result<(i64, i64, Option<Value>), String> {
        let id = self
            .agent
            .parse()
            .map_err(|_| format!("agent `{}` is not a number", self.agent))?;
        let project = self
            .config_project
            .or_else(|| Some(world.agents.get(&self.agent)?.config_project_id));
        let config = self.config.of(world)?;
        Ok((
            id,
            project.ok_or("the agent has no project")?,
            config.get("ci_access").cloned(),
        ))
    }

    /// The settings file.
    ///
    /// # Errors
    /// `authentication` is not an `AuthenticationConfiguration`.
    pub(super) fn settings(&self, world: &World, (discovery, platform): (&str, SocketAddr)) -> Result<Value, String> {
        let authorizer = match self.authorizer {
            Authorizer::Embedded => json!("embedded"),
            Authorizer::Remote => {
                json!({"remote": {"url": format!("http://{platform}/"), "secretFile": "platform-secret"}})
            }
        };
        Ok(json!({
            "listen": "127.0.0.1:0",
            "admin": {"listen": "127.0.0.1:0"},
            "state": {"directory": "state", "namespace": CONTROL_PLANE},
            "policies": {"directory": "policies"},
            "plugins": {"directory": "plugins", "cache": "cache"},
            "authentication": {"argocdSessions": true},
            "decisions": {"file": "decisions.jsonl"},
            "kubernetes": {
                "authorizer": authorizer,
                "allowedOrigins": world.allowed_origins,
                "agentClaim": world.oidc.agent_claim,
                "jwt": self.issuers(world, discovery)?,
                "cache": {
                    "success": format!("{}s", world.cache.success_ttl_s),
                    "refusal": format!("{}s", world.cache.error_ttl_s),
                },
            },
        }))
    }

    fn issuers(&self, world: &World, discovery: &str) -> Result<Vec<Value>, String> {
        let oidc = &world.oidc;
        let own = || vec![json!({"issuer": {"url": oidc.issuer, "audiences": oidc.audiences}})];
        let mut entries = match &self.authentication {
            None => own(),
            Some(given) => {
                let (version, kind) = (given.api_version.as_str(), given.kind.as_str());
                if (version, kind) != ("apiserver.config.k8s.io/v1", "AuthenticationConfiguration") {
                    return Err(format!("authentication is `{version}` `{kind}`"));
                }
                given.jwt.clone()
            }
        };
        for entry in &mut entries {
            if entry["issuer"]["url"] != json!(oidc.issuer) {
                return Err(format!("issuer {} is not the world's", entry["issuer"]["url"]));
            }
            entry["issuer"]["discoveryURL"] = discovery.into();
            if entry.get("algorithms").is_none() {
                entry["algorithms"] = json!(oidc.algs);
            }
        }
        Ok(entries)
    }

    /// File names of the state folder and their objects.
    ///
    /// # Errors
    /// The world is invalid.
    pub(super) fn state(&self, world: &World, cluster: &Cluster) -> Result<Vec<(String, Value)>, String> {
        let config_map =
            |name: &str, data: Value| object("v1", "ConfigMap", name, CONTROL_PLANE, json!({"data": data}));
        let policy = format!(
            "p, {OPERATOR}, *, *, *, allow\np, {OPERATOR}, sessions, *, */*, allow\np, {OPERATOR}, audit, get, */*, allow\n"
        );
        let secret = json!({"stringData": {"server.secretkey": SESSION_KEY}});
        let mut objects = vec![
            (
                "argocd-cm.yaml".to_owned(),
                config_map("argocd-cm", json!({(format!("accounts.{OPERATOR}")): "login"})),
            ),
            (
                "argocd-rbac-cm.yaml".to_owned(),
                config_map("argocd-rbac-cm", json!({"policy.csv": policy})),
            ),
            (
                "argocd-secret.yaml".to_owned(),
                object("v1", "Secret", "argocd-secret", CONTROL_PLANE, secret),
            ),
            ("cluster.yaml".to_owned(), cluster_secret(cluster)),
        ];
        let directory = json!({"spec": world.directory()?});
        objects.push((
            "people.yaml".to_owned(),
            object(
                "tollgate.dev/v1alpha1",
                "UserDirectory",
                "people",
                CONTROL_PLANE,
                directory,
            ),
        ));
        for (number, agent) in &world.agents {
            let id: i64 = number
                .parse()
                .map_err(|_| format!("agent `{number}` is not a number"))?;
            let is_configured = *number == self.agent;
            let config = match is_configured {
                true => self.config.of(world)?,
                false => sections(&named(world, &agent.config)?),
            };
            let project = self
                .config_project
                .filter(|_| is_configured)
                .unwrap_or(agent.config_project_id);
            let spec = json!({"id": id, "configProject": {"id": project}, "cluster": "production", "config": config});
            objects.push((
                format!("agent-{number}.yaml"),
                object(
                    "tollgate.dev/v1alpha1",
                    "Agent",
                    &agent.name,
                    CONTROL_PLANE,
                    json!({"spec": spec}),
                ),
            ));
        }
        Ok(objects)
    }

    /// Restricts the case's agent in the data of the shipped policy, as an operator does.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_policy(&self, policies: &Path, world: &World) -> Result<(), String> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let PolicyKind::ReadOnly = policy.kind;
        let agent = world
            .agents
            .get(&self.agent)
            .ok_or("the world does not have the case's agent")?;
        let file = policies.join("kubernetes/data/agents.yaml");
        let text = |error: std::io::Error| format!("`{}`: {error}", file.display());
        let mut data = std::fs::read_to_string(&file).map_err(text)?;
        let verbs = policy.allow_verbs.join(", ");
        data.push_str(&format!("{}:\n  verbs: [{verbs}]\n", agent.name));
        std::fs::write(&file, data).map_err(text)
    }
}

impl Config {
    fn of(&self, world: &World) -> Result<Value, String> {
        match self {
            Self::Named(name) => Ok(sections(&named(world, name)?)),
            Self::Own(config) => Ok(config.clone()),
        }
    }
}

/// The sections of a configuration that belong to the agent's `config.yaml`.
fn sections(inline: &Inline) -> Value {
    let mut config = json!({});
    for (key, section) in [("user_access", &inline.user_access), ("ci_access", &inline.ci_access)] {
        if let Some(section) = section {
            config[key] = section.clone();
        }
    }
    config
}

fn named(world: &World, name: &str) -> Result<Inline, String> {
    let config = world
        .configs
        .get(name)
        .ok_or(format!("the world has no config `{name}`"))?;
    serde_json::from_value(json!({"inline": config}))
        .map_err(|error| format!("config `{name}`: {error}"))
        .and_then(|choice| match choice {
            ConfigChoice::Inline(inline) => Ok(inline),
            ConfigChoice::Ref(_) => Err(format!("config `{name}` is a reference")),
        })
}

/// The configuration for sequences about mapped groups: user names and groups come from claims.
fn mapping(inline: &Inline, world: &World) -> Inline {
    let mappings = json!({
        "username": {"claim": "sub", "prefix": "oidc:"},
        "groups": {"claim": "groups", "prefix": ""},
    });
    let issuer = json!({"url": world.oidc.issuer, "audiences": world.oidc.audiences});
    Inline {
        user_access: Some(json!({"access_as": {"mapped": {}}})),
        authentication: Some(Authentication {
            api_version: "apiserver.config.k8s.io/v1".to_owned(),
            kind: "AuthenticationConfiguration".to_owned(),
            jwt: vec![json!({"issuer": issuer, "claimMappings": mappings})],
        }),
        ..inline.clone()
    }
}

fn is_job(credential: &Credential) -> bool {
    match credential {
        Credential::Ci { .. } => true,
        Credential::Mixed { parts } => parts.iter().any(is_job),
        Credential::None {}
        | Credential::Malformed {}
        | Credential::Sequence {}
        | Credential::Pat { .. }
        | Credential::SessionCookie { .. }
        | Credential::Oidc { .. } => false,
    }
}

fn cluster_secret(cluster: &Cluster) -> Value {
    let tls = json!({"caData": STANDARD.encode(&cluster.ca_pem)});
    let config = json!({"bearerToken": SA_TOKEN, "tlsClientConfig": tls});
    let labels = json!({"labels": {"argocd.argoproj.io/secret-type": "cluster"}});
    let data = json!({
        "name": "production",
        "server": format!("https://{}", cluster.address),
        "config": config.to_string(),
    });
    object(
        "v1",
        "Secret",
        "cluster-production",
        CONTROL_PLANE,
        json!({"metadata": labels, "stringData": data}),
    )
}
