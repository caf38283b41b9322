//! Starts a whole gateway with its environment: API server, platform, issuer, store and clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_config::raw;
use tollgate_core::agent::AgentId;
use tollgate_core::user::User;
use tollgate_gateway::running::RunningGateway;
use tollgate_identity::clock::Clock;
use tollgate_store::{Actor, BrowserSession, SecretHash, Store, Token};
use uuid::Uuid;

use super::case::Record;
use super::cluster::Cluster;
use super::issuer::Issuer;
use super::plan::{ApiServerState, Plan};
use super::platform::Platform;
use super::table::World;
use super::wire::TIMEOUT;
use test_support::world::{checker, checkout, copy_tree};

/// A credential that was put into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seed {
    /// A personal access token: user and record.
    Token(String, Record),
    /// The cookie of a browser session: user and CSRF token.
    Session(String, String),
}

/// A gateway with its environment. Dropping it stops the gateway.
pub(super) struct TestEnvironment {
    pub(super) plan: Plan,
    pub(super) world: World,
    pub(super) running: RunningGateway,
    pub(super) clock: Clock,
    pub(super) store: Store,
    pub(super) cluster: Cluster,
    pub(super) platform: Platform,
    pub(super) issuer: Issuer,
    seeds: BTreeMap<String, Seed>,
    tokens: BTreeMap<String, Uuid>,
    folder: TempDir,
}

impl TestEnvironment {
    /// Starts a gateway.
    ///
    /// # Errors
    /// The gateway or a part of its environment cannot be started.
    pub(super) async fn start(plan: &Plan, world: &World) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| format!("the gateway cannot be started: {error}");
        let folder = tempfile::tempdir().map_err(|error| text(&error))?;
        let root = folder.path();
        let cluster = match plan.api_server {
            ApiServerState::Listening => Cluster::start().await?,
            ApiServerState::Refusing => Cluster::absent()?,
        };
        let platform = Platform::start().await?;
        let issuer = Issuer::start(&world.oidc).await?;
        for name in ["state", "plugins", "policies"] {
            std::fs::create_dir_all(root.join(name)).map_err(|error| text(&error))?;
        }
        copy_tree(&checkout().join("policies"), &root.join("policies"));
        plan.write_policy(&root.join("policies"), world)?;
        write_state(root, &plan.state(world, &cluster)?)?;
        std::fs::write(root.join("platform-secret"), super::platform::SECRET).map_err(|error| text(&error))?;
        let settings = plan.settings(world, (&issuer.discovery_url(), platform.address))?;
        std::fs::write(root.join("tollgate.yaml"), settings.to_string()).map_err(|error| text(&error))?;
        let loaded = raw::load(&root.join("tollgate.yaml"));
        let config = loaded
            .value
            .ok_or_else(|| format!("settings: {:?}", loaded.diagnostics))?;
        let clock = Clock::default();
        let running = RunningGateway::start_with(Arc::new(config), checker(), clock.clone(), None)
            .await
            .map_err(|error| format!("the gateway cannot be started: {error:#}"))?;
        let url = SecretString::from(format!("sqlite:{}", root.join("tollgate.db").display()));
        let store = Store::open(&url).await.map_err(|error| text(&error))?;
        Ok(Self {
            plan: plan.clone(),
            world: world.clone(),
            running,
            clock,
            store,
            cluster,
            platform,
            issuer,
            seeds: BTreeMap::new(),
            tokens: BTreeMap::new(),
            folder,
        })
    }

    /// Converts a time of the world to this gateway's clock.
    pub(super) fn gateway_time(&self, world: &World, at: Timestamp) -> Timestamp {
        self.clock.now() + at.duration_since(world.now)
    }

    /// Whether the store has the token with another user or record. Without a `record`, whether
    /// the store has it at all.
    pub(super) fn contradicts(&self, token: &str, user: &str, record: Option<&Record>) -> bool {
        let wanted = record.map(|record| Seed::Token(user.to_owned(), record.clone()));
        self.seeds
            .get(token)
            .is_some_and(|known| Some(known) != wanted.as_ref())
    }

    /// Puts a personal access token into the store, once.
    pub(super) async fn import(
        &mut self,
        world: &World,
        (user, token): (&str, &str),
        record: &Record,
    ) -> Result<(), String> {
        let seed = Seed::Token(user.to_owned(), record.clone());
        if self.seeds.get(token) == Some(&seed) {
            return Ok(());
        }
        let id = Uuid::now_v7();
        let now = self.clock.now();
        let expires_at = self.gateway_time(world, record.expires_at);
        let agent = world.agents.get(&record.agent_id.to_string());
        let imported = Token {
            id,
            name: token.to_owned(),
            user: person(world, user)?,
            agent_id: AgentId::new(record.agent_id).ok_or("a record's `agent_id` is not a number of an agent")?,
            agent: agent.map(|agent| format!("{}/production", agent.name)),
            scopes: record.scopes.clone(),
            created_at: now.min(expires_at) - SignedDuration::from_hours(24),
            expires_at,
            revoked_at: record.revoked.then_some(now),
            last_used_at: None,
        };
        let hash = SecretHash::of(&SecretString::from(token));
        let imported = self.store.import_token(&imported, hash).await;
        imported.map_err(|error| format!("`{token}` cannot be imported: {error}"))?;
        self.seeds.insert(token.to_owned(), seed);
        self.tokens.insert(token.to_owned(), id);
        Ok(())
    }

    /// Puts a browser session into the store, once.
    pub(super) async fn sign_in(
        &mut self,
        world: &World,
        user: &str,
        (cookie, csrf): (&str, &str),
    ) -> Result<(), String> {
        let seed = Seed::Session(user.to_owned(), csrf.to_owned());
        if self.seeds.get(cookie) == Some(&seed) {
            return Ok(());
        }
        let now = self.clock.now();
        let session = BrowserSession {
            id: Uuid::now_v7(),
            user: person(world, user)?,
            csrf: SecretHash::of(&SecretString::from(csrf)),
            created_at: now,
            // Longer than a run advances the clock.
            expires_at: now + SignedDuration::from_hours(30 * 24),
            revoked_at: None,
        };
        let hash = SecretHash::of(&SecretString::from(cookie));
        let by = Actor {
            user_id: None,
            name: "tests".to_owned(),
        };
        let created = self.store.create_session(&session, hash, &by).await;
        created.map_err(|error| format!("session `{cookie}` cannot be made: {error}"))?;
        self.seeds.insert(cookie.to_owned(), seed);
        Ok(())
    }

    /// The id of an imported token.
    pub(super) fn token_id(&self, token: &str) -> Option<Uuid> {
        self.tokens.get(token).copied()
    }

    /// Rewrites the state folder and waits until the gateway uses it.
    pub(super) async fn update_state(&self, world: &World) -> Result<(), String> {
        let before = self.generation().await?;
        write_state(self.folder.path(), &self.plan.state(world, &self.cluster)?)?;
        let waited = tokio::time::timeout(TIMEOUT, async {
            while self.generation().await? == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(())
        });
        waited
            .await
            .map_err(|_| format!("expected a generation after {before}, observed none within {TIMEOUT:?}"))?
    }

    async fn generation(&self) -> Result<u64, String> {
        let (_, page) = self.admin("/configuration").await?;
        page["generation"]
            .as_u64()
            .ok_or_else(|| format!("no generation in `{page}`"))
    }

    /// Status and JSON of a response of the admin listener.
    pub(super) async fn admin(&self, path: &str) -> Result<(u16, Value), String> {
        let url = format!("http://{}{path}", self.running.admin_address());
        let answer = reqwest::get(url).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_str(&text).unwrap_or(json!(text))))
    }

    /// Waits for the record of a decision, which is written when the exchange has ended.
    pub(super) async fn decision(&self, id: &str) -> Result<Value, String> {
        let waited = tokio::time::timeout(TIMEOUT, async {
            loop {
                match self.admin(&format!("/decisions/{id}")).await? {
                    (200, record) => return Ok(record),
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        waited
            .await
            .map_err(|_| format!("expected a record of decision `{id}`, observed none within {TIMEOUT:?}"))?
    }
}

/// A user of the directory.
pub(super) fn person(world: &World, username: &str) -> Result<User, String> {
    let person = world
        .users
        .get(username)
        .ok_or(format!("the world has no user `{username}`"))?;
    Ok(User {
        id: person.id,
        username: username.to_owned(),
    })
}

/// Writes each object to its own file, atomically, as editors do.
fn write_state(root: &Path, objects: &[(String, Value)]) -> Result<(), String> {
    for (name, object) in objects {
        let (aside, file) = (root.join("aside"), root.join("state").join(name));
        let written = std::fs::write(&aside, object.to_string()).and_then(|()| std::fs::rename(&aside, &file));
        written.map_err(|error| format!("`{}`: {error}", file.display()))?;
    }
    Ok(())
}
