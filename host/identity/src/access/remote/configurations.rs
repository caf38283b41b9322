//! Tells a remote platform the configurations of agents, which decides by them who may use which agent.
//!
//! A configuration is sent after the start and after each change, again and again until the platform has it.
//! One with mistakes is not sent: the platform keeps the last good one, as the gateway does.
//!
//! Source: GitLab's agent server, `POST /api/v4/internal/kubernetes/agent_configuration`, which answers 204.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tokio::time::sleep;

use super::{RemotePlatform, WRONG_SECRET, unavailable, unexpected_status};
use crate::access::Agents;
use crate::access::Error;
use tollgate_core::agent::{Agent, AgentId};

/// How often changes are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// First and longest pause before a platform that did not answer is asked again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Tells a remote platform the configurations of agents.
#[derive(Debug)]
pub struct ConfigurationReporter {
    platform: Arc<RemotePlatform>,
    /// What the platform has, or refused.
    reported: BTreeMap<AgentId, Arc<Value>>,
}

#[derive(Serialize)]
struct WireConfiguration<'a> {
    agent_id: i64,
    agent_config: &'a Value,
}

impl ConfigurationReporter {
    pub(in crate::access) fn new(platform: Arc<RemotePlatform>) -> Self {
        Self {
            platform,
            reported: BTreeMap::new(),
        }
    }

    /// Tells every change of the agents in force, forever.
    ///
    /// - `current`: the agents in force; `None` while there are none.
    pub async fn run(mut self, current: impl Fn() -> Option<Arc<Agents>> + Send) {
        let mut reported = None;
        let mut pause = PAUSE.0;
        loop {
            let agents = current();
            let generation = agents.as_ref().map(|agents| agents.generation);
            if let Some(agents) = agents.filter(|_| reported != generation) {
                match self.report(&agents).await {
                    Ok(()) => (reported, pause) = (generation, PAUSE.0),
                    Err(error) => {
                        tracing::warn!(%error, "the platform does not know the configurations of agents; trying again");
                        sleep(pause).await;
                        pause = PAUSE.1.min(pause * 2);
                        continue;
                    }
                }
            }
            sleep(INTERVAL).await;
        }
    }

    /// Tells each configuration that the platform does not have.
    ///
    /// # Errors
    /// `Unavailable`: the platform does not have every configuration. One that it cannot take keeps no other one
    /// from it.
    async fn report(&mut self, agents: &Agents) -> Result<(), Error> {
        let mut result = Ok(());
        for (agent, document) in agents.documents() {
            if self.reported.get(&agent.id) == Some(document) {
                continue;
            }
            // Without an answer, each further agent would only wait for one as well.
            match self.send(agent, document).await? {
                Ok(()) => drop(self.reported.insert(agent.id, Arc::clone(document))),
                Err(status) => result = Err(unexpected_status(status)),
            }
        }
        // The configuration of an agent that comes back is sent anew.
        self.reported.retain(|id, _| agents.agent(*id).is_some());
        result
    }

    /// Returns the status if the platform could answer another one later.
    async fn send(&self, agent: &Agent, document: &Value) -> Result<Result<(), StatusCode>, Error> {
        let wire = WireConfiguration {
            agent_id: agent.id.get(),
            agent_config: document,
        };
        let body = serde_json::to_vec(&wire);
        let body = body.map_err(|_| unavailable("the configuration cannot be written as JSON"))?;
        let (status, _) = self
            .platform
            .post(&self.platform.configuration_url, Bytes::from(body))
            .await?;
        let (id, name) = (agent.id.get(), &agent.name);
        match status {
            _ if status.is_success() => {
                tracing::info!(id, name, "the platform has the configuration of the agent");
                Ok(Ok(()))
            }
            StatusCode::UNAUTHORIZED => Err(unavailable(WRONG_SECRET)),
            StatusCode::TOO_MANY_REQUESTS => Ok(Err(status)),
            // It would refuse the same again.
            _ if status.is_client_error() => {
                let status = status.as_u16();
                tracing::warn!(
                    id,
                    name,
                    status,
                    "the platform refuses the configuration of the agent, and decides by the one it has"
                );
                Ok(Ok(()))
            }
            _ => Ok(Err(status)),
        }
    }
}

#[cfg(test)]
mod tests;
