//! Mints a credential for a [`Plan`] with the host's functions: secrets, network, clock. Code that
//! does not need the host is in other modules, where native tests can run it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_provider::{
    Answer, Cluster, Credential, Encoding, Error, Part, Request, Secret, SecretError, SecretRef, bearer, json_path,
    optional, secrets,
};
use tollgate_template::{Value, Values};

use crate::answer;
use crate::config::{Method, Plan};
use crate::lower::{Piece, SecretStore};
use crate::render::{RenderedRequest, render};

/// Requests a token for `cluster`.
///
/// # Errors
/// Why there is no token. Errors that are found before the request is sent have the class `config`.
pub(crate) fn mint(plan: Plan, cluster: &Cluster) -> Result<Credential, Error> {
    let values = SecretValues::new(cluster, plan.public_names());
    let mut handles = Handles::new(&values);
    let rendered = render(&plan, &values, &mut handles);
    values.refused.take().map_or(Ok(()), Err)?;
    let mut answer = send(&rendered?, &handles, &plan.token_path)?;
    let Some(token) = answer.captured(0).filter(|_| answer.is_success()) else {
        return Err(answer::refusal(&answer, &plan.token_path));
    };
    let document = answer.text().into_bytes();
    let select = |path: &str| {
        let node = json_path::select(&document, path).ok().flatten()?;
        serde_json::from_str(&node).ok()
    };
    let expiry = plan.lifetime.expiry(answer.sent_at, &plan.token_path, &select);
    let expiry = expiry.shortened_by(&token, answer.sent_at);
    let mut credential = bearer(token, expiry);
    credential.warnings.extend(plan.warnings);
    Ok(credential)
}

fn send(rendered: &RenderedRequest, handles: &Handles<'_>, token_path: &str) -> Result<Answer, Error> {
    let mut request = match rendered.method {
        Method::Get => Request::get(&rendered.url),
        Method::Post => Request::post(&rendered.url),
        Method::Put => Request::put(&rendered.url),
        Method::Patch => Request::patch(&rendered.url),
        Method::Delete => Request::delete(&rendered.url),
    };
    for (name, value) in &rendered.query {
        request = request.query_parts(name, handles.parts(value)?);
    }
    for (name, value) in &rendered.headers {
        request = request.header_parts(name, handles.parts(value)?);
    }
    request.body(handles.parts(&rendered.body)?).capture(token_path).send()
}

/// The values of the cluster's Secret, by name.
struct SecretValues<'a> {
    /// What the Secret says of the cluster itself: `name` and `server`, which are not secret.
    cluster: &'a Cluster,
    /// Names of the values to read as text.
    public: BTreeSet<String>,
    /// Handles that were fetched and are not used yet.
    fetched: RefCell<BTreeMap<String, Secret>>,
    /// Why the first value that cannot be used was refused. A missing value is not refused here.
    refused: RefCell<Option<Error>>,
}

impl<'a> SecretValues<'a> {
    fn new(cluster: &'a Cluster, public: BTreeSet<String>) -> Self {
        Self {
            cluster,
            public,
            fetched: RefCell::default(),
            refused: RefCell::default(),
        }
    }
}

impl Values for SecretValues<'_> {
    fn value(&self, name: &str) -> Option<Value> {
        match name {
            "name" => return Some(Value::Public(self.cluster.name.clone())),
            "server" => return Some(Value::Public(self.cluster.server.clone())),
            _ => {}
        }
        if self.public.contains(name) {
            match secrets::public(name) {
                Ok(text) => return Some(Value::Public(text)),
                Err(SecretError::NotFound) => return None,
                // The host does not allow it as text. As a secret the template refuses it, with a
                // message that says where it has to be public.
                Err(_) => {}
            }
        }
        match optional(name) {
            Ok(secret) => {
                self.fetched.borrow_mut().insert(name.to_owned(), secret?);
                Some(Value::Secret)
            }
            Err(error) => {
                self.refused.borrow_mut().get_or_insert(error);
                None
            }
        }
    }
}

/// All handles of this call.
struct Handles<'a> {
    source: &'a SecretValues<'a>,
    secrets: Vec<Secret>,
    names: BTreeMap<String, usize>,
}

impl<'a> Handles<'a> {
    fn new(source: &'a SecretValues<'a>) -> Self {
        Self {
            source,
            secrets: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    fn keep(&mut self, secret: Result<Secret, SecretError>) -> Result<usize, Error> {
        self.secrets.push(secret?);
        Ok(self.secrets.len() - 1)
    }

    fn handle(&self, secret: usize) -> Result<&Secret, Error> {
        self.secrets.get(secret).ok_or_else(|| SecretError::NotFound.into())
    }

    fn parts(&self, pieces: &[Piece]) -> Result<Vec<Part<'_>>, Error> {
        let part = |piece: &Piece| match piece {
            Piece::Text(text) => Ok(Part::Text(text.clone())),
            Piece::Secret(secret, encoding) => Ok(Part::Secret(SecretRef {
                value: self.handle(*secret)?,
                encoding: *encoding,
            })),
        };
        pieces.iter().map(part).collect()
    }
}

impl SecretStore for Handles<'_> {
    fn named(&mut self, name: &str) -> Result<usize, Error> {
        if let Some(secret) = self.names.get(name) {
            return Ok(*secret);
        }
        let fetched = self.source.fetched.borrow_mut().remove(name);
        let secret = self.keep(fetched.map_or_else(|| secrets::get(name), Ok))?;
        self.names.insert(name.to_owned(), secret);
        Ok(secret)
    }

    fn compose(&mut self, pieces: &[Piece], encoding: Encoding) -> Result<usize, Error> {
        let composed = secrets::compose(&self.parts(pieces)?, encoding);
        self.keep(composed)
    }

    fn trim(&mut self, secret: usize) -> Result<usize, Error> {
        let trimmed = secrets::trim(self.handle(secret)?);
        self.keep(trimmed)
    }
}
