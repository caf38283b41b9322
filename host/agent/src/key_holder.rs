//! The agent's key: from a file, or from a Secret where the agent makes it, joins with it and replaces it.
//!
//! | member of the Secret | meaning |
//! |---|---|
//! | `key.pem` | the key |
//! | `made` | when it was made (RFC 3339) |
//! | `next.pem` | the key that is to follow |
//! | `joinToken` | lets the agent join; removed when it has |
//!
//! Invariant: a key is in the Secret before the gateway hears of it, so that an agent that is killed at any
//! moment has one of the keys that the gateway knows.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use uuid::Uuid;
use zeroize::{Zeroize as _, Zeroizing};

use crate::api_server::ApiServer;
use crate::hello::{Challenge, Channel, Introduction, NewKey, Proof, Status, StatusAnswer};
use crate::key::{NoKey, SigningKey};
use crate::secret;
use crate::settings::SecretName;

const KEY: &str = "key.pem";
const MADE: &str = "made";
const NEXT: &str = "next.pem";
const JOIN_TOKEN: &str = "joinToken";

/// How often a write starts over because another process wrote first.
const ATTEMPTS: usize = 5;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Secret(#[from] secret::Error),
    #[error("`{member}` of the Secret `{secret}`: {source}")]
    Key {
        secret: SecretName,
        member: &'static str,
        source: NoKey,
    },
    #[error(transparent)]
    Random(#[from] NoKey),
}

/// The key that this connector proves itself by, where it is kept, and what it says of itself.
#[derive(Debug)]
pub(crate) struct KeyHolder {
    source: Source,
    cluster: String,
    /// This process.
    instance: Uuid,
}

#[derive(derive_more::Debug)]
enum Source {
    Fixed(Box<SigningKey>),
    Secret {
        name: SecretName,
        rotate_every: Duration,
        #[debug(skip)]
        keys: Mutex<Option<Box<Keys>>>,
    },
}

/// What the Secret holds.
struct Keys {
    key: SigningKey,
    made: Timestamp,
    next: Option<SigningKey>,
    join_token: Option<SecretString>,
    resource_version: String,
}

impl KeyHolder {
    pub(crate) fn fixed(key: SigningKey, cluster: String) -> Self {
        Self::new(Source::Fixed(Box::new(key)), cluster)
    }

    pub(crate) fn in_secret(name: SecretName, rotate_every: Duration, cluster: String) -> Self {
        let source = Source::Secret {
            name,
            rotate_every,
            keys: Mutex::default(),
        };
        Self::new(source, cluster)
    }

    fn new(source: Source, cluster: String) -> Self {
        Self {
            source,
            cluster,
            instance: Uuid::new_v4(),
        }
    }

    /// Reads the key, or makes one, unless it is known.
    pub(crate) async fn load(&self, api: &ApiServer) -> Result<(), Error> {
        if let Source::Secret { name, keys, .. } = &self.source {
            let mut keys = keys.lock().await;
            if keys.is_none() {
                *keys = Some(Box::new(load(api, name).await?));
            }
        }
        Ok(())
    }

    /// Reads the Secret again before the next connection: the gateway does not know the key.
    ///
    /// - `reason`: the gateway's.
    pub(crate) async fn refused(&self, api: &ApiServer, reason: &str) -> Result<(), Error> {
        let Source::Secret { name, keys, .. } = &self.source else {
            return Ok(());
        };
        let mut keys = keys.lock().await;
        // If the read fails, `load` reads the key again before the next connection.
        let before = keys.take();
        let mut read = load(api, name).await?;
        let is_same = before.is_some_and(|before| before.key.public() == read.key.public());
        match reason {
            // An agent that was away for longer than a day may have been known by its next key last.
            "key_unknown" if is_same && read.join_token.is_none() && read.next.is_some() => {
                promote(api, name, &mut read).await?;
            }
            // A key that was revoked never comes back.
            "key_revoked" | "key_unusable" if is_same && read.join_token.is_some() => {
                read = replace(api, name, &read.resource_version).await?;
            }
            _ => {}
        }
        *keys = Some(Box::new(read));
        Ok(())
    }

    /// Introduces the agent to the gateway. `None` if no key was read.
    pub(crate) async fn introduction(&self) -> Option<Introduction> {
        let now = Timestamp::now();
        match &self.source {
            Source::Fixed(key) => Some(Introduction::new(key, now)),
            Source::Secret { keys, .. } => {
                let keys = keys.lock().await;
                Some(Introduction::new(&keys.as_ref()?.key, now))
            }
        }
    }

    /// Answers the gateway's challenge. `None` if no key was read.
    pub(crate) async fn proof(&self, challenge: &Challenge, channel: &Channel) -> Option<Proof> {
        let (cluster, instance) = (self.cluster.as_str(), self.instance);
        match &self.source {
            Source::Fixed(key) => Some(Proof::new(challenge, key, channel, cluster, instance)),
            Source::Secret { keys, .. } => {
                let keys = keys.lock().await;
                let keys = keys.as_ref()?;
                let mut proof = Proof::new(challenge, &keys.key, channel, cluster, instance);
                proof.join_token.clone_from(&keys.join_token);
                Some(proof)
            }
        }
    }

    /// Takes notice of what the gateway says, and offers it a new key when the old one is old.
    pub(crate) async fn answer_status(&self, api: &ApiServer, status: &Status) -> StatusAnswer {
        let Source::Secret {
            name,
            rotate_every,
            keys,
        } = &self.source
        else {
            return StatusAnswer::default();
        };
        let mut keys = keys.lock().await;
        // Changed in place: the gateway may end the request at any moment, and the key must still be known then.
        let Some(known) = keys.as_deref_mut() else {
            return StatusAnswer::default();
        };
        match follow(api, name, known, *rotate_every, status).await {
            Ok(answer) => answer,
            Err(error) => {
                // The Secret is read again.
                tracing::warn!(%error, "the connector's key cannot be changed");
                *keys = load(api, name).await.ok().map(Box::new);
                StatusAnswer::default()
            }
        }
    }
}

async fn follow(
    api: &ApiServer,
    name: &SecretName,
    keys: &mut Keys,
    rotate_every: Duration,
    status: &Status,
) -> Result<StatusAnswer, Error> {
    let is_next = |next: &SigningKey| next.public().to_string() == status.key;
    if keys.next.as_ref().is_some_and(is_next) {
        tracing::info!(key = status.key, "the gateway knows the connector's new key");
        promote(api, name, keys).await?;
    }
    if keys.key.public().to_string() != status.key {
        return Ok(StatusAnswer::default());
    }
    if keys.join_token.is_some() {
        tracing::info!(key = status.key, "joined; the token is removed");
        let data = Value::from_iter([(JOIN_TOKEN, Value::Null)]);
        *keys = write(api, name, &keys.resource_version, data).await?;
    }
    // Unsigned below: a time in the future, from a clock that was wrong, must not keep the key forever.
    let age = Timestamp::now().duration_since(keys.made);
    if keys.next.is_none() && age.unsigned_abs() >= rotate_every {
        let pem = SigningKey::generate_pem()?;
        let data = Value::from_iter([(NEXT, encoded(pem.expose_secret()))]);
        *keys = write(api, name, &keys.resource_version, data).await?;
    }
    let new_key = keys.next.as_ref().map(|next| NewKey::sign(status, &keys.key, next));
    Ok(StatusAnswer { new_key })
}

/// Makes the next key the key.
async fn promote(api: &ApiServer, name: &SecretName, keys: &mut Keys) -> Result<(), Error> {
    let mut read = secret::read(api, name).await?;
    let next = member_of(&read, NEXT).map(str::to_owned);
    zeroize(&mut read);
    // Another process has changed the Secret since it was read.
    let Some(next) = next else { return Ok(()) };
    let data = Value::from_iter([
        (KEY, Value::from(next)),
        (NEXT, Value::Null),
        (MADE, encoded(&Timestamp::now().to_string())),
    ]);
    *keys = write(api, name, &keys.resource_version, data).await?;
    Ok(())
}

/// Makes another key, in the place of all that are there.
async fn replace(api: &ApiServer, name: &SecretName, resource_version: &str) -> Result<Keys, Error> {
    let pem = SigningKey::generate_pem()?;
    let data = Value::from_iter([
        (KEY, encoded(pem.expose_secret())),
        (NEXT, Value::Null),
        (MADE, encoded(&Timestamp::now().to_string())),
    ]);
    write(api, name, resource_version, data).await
}

async fn write(api: &ApiServer, name: &SecretName, resource_version: &str, mut data: Value) -> Result<Keys, Error> {
    let written = secret::patch(api, name, resource_version, data.clone()).await;
    zeroize(&mut data);
    let mut written = written?;
    let keys = decode(name, &written);
    zeroize(&mut written);
    keys?.ok_or_else(|| no_key(name, KEY))
}

async fn load(api: &ApiServer, name: &SecretName) -> Result<Keys, Error> {
    let mut attempt = 1;
    loop {
        let mut read = secret::read(api, name).await?;
        let keys = decode(name, &read);
        let resource_version = secret::resource_version(&read).to_owned();
        zeroize(&mut read);
        if let Some(keys) = keys? {
            return Ok(keys);
        }
        match replace(api, name, &resource_version).await {
            // Another process of the agent has written first, and may have made the key.
            Err(Error::Secret(secret::Error::Conflict(_))) if attempt < ATTEMPTS => attempt += 1,
            made => {
                if let Ok(keys) = &made {
                    tracing::info!(key = %keys.key.public(), secret = %name, "the connector has made its key");
                }
                return made;
            }
        }
    }
}

/// `None` without a key.
fn decode(name: &SecretName, secret: &Value) -> Result<Option<Keys>, Error> {
    let member = |member: &str| {
        let decoded = STANDARD.decode(member_of(secret, member)?).ok().map(Zeroizing::new)?;
        let text = std::str::from_utf8(&decoded).ok().filter(|text| !text.is_empty())?;
        Some(SecretString::from(text))
    };
    // A member that is no key is an error, not an absent one, which would be replaced.
    let key = |name_of: &'static str| {
        let pem = member_of(secret, name_of).filter(|text| !text.is_empty());
        let key = pem.map(|_| member(name_of).and_then(|pem| SigningKey::from_pem(&pem).ok()));
        key.map(|key| key.ok_or_else(|| no_key(name, name_of))).transpose()
    };
    let made = member(MADE).and_then(|made| made.expose_secret().parse().ok());
    let Some(current) = key(KEY)? else { return Ok(None) };
    Ok(Some(Keys {
        key: current,
        made: made.unwrap_or_else(Timestamp::now),
        next: key(NEXT)?,
        join_token: member(JOIN_TOKEN),
        resource_version: secret::resource_version(secret).to_owned(),
    }))
}

fn no_key(secret: &SecretName, member: &'static str) -> Error {
    Error::Key {
        secret: secret.clone(),
        member,
        source: NoKey,
    }
}

/// A member of the Secret, in base64.
fn member_of<'a>(secret: &'a Value, member: &str) -> Option<&'a str> {
    secret.get("data")?.get(member)?.as_str()
}

fn encoded(text: &str) -> Value {
    Value::from(STANDARD.encode(text))
}

/// Overwrites the members of a Secret.
fn zeroize(secret: &mut Value) {
    let is_secret = secret.get("data").is_some();
    let data = match is_secret {
        true => secret.get_mut("data"),
        false => Some(secret),
    };
    let members: Option<&mut Map<String, Value>> = data.and_then(Value::as_object_mut);
    for value in members.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = value {
            text.zeroize();
        }
    }
}

#[cfg(test)]
mod tests;
