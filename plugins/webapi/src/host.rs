//! The host's functions: secrets, network, clock.
//!
//! In: a [`Plan`]. Out: a credential. Never: a decision that could be made
//! without the host, for those are tested natively.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_provider::{
    Answer, Credential, Encoding, Error, Part, Request, Secret, SecretError, SecretRef, bearer, json_path, optional,
    secrets,
};
use tollgate_template::{Value, Values};

use crate::answer;
use crate::ask::{Ask, ask};
use crate::config::{Method, Plan};
use crate::lower::{Piece, Vault};

/// Asks for a token.
///
/// # Errors
/// Why there is none; class `config` for what is found before anything is sent.
pub(crate) fn mint(plan: Plan) -> Result<Credential, Error> {
    let names = Names::new(plan.public_names());
    let mut handles = Handles::new(&names);
    let rendered = ask(&plan, &names, &mut handles);
    names.refused.take().map_or(Ok(()), Err)?;
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

fn send(wanted: &Ask, handles: &Handles<'_>, token_path: &str) -> Result<Answer, Error> {
    let mut request = match wanted.method {
        Method::Get => Request::get(&wanted.url),
        Method::Post => Request::post(&wanted.url),
        Method::Put => Request::put(&wanted.url),
    };
    for (name, value) in &wanted.query {
        request = request.query_parts(name, handles.parts(value)?);
    }
    for (name, value) in &wanted.headers {
        request = request.header_parts(name, handles.parts(value)?);
    }
    request.body(handles.parts(&wanted.body)?).capture(token_path).send()
}

/// The values of the cluster's Secret, by name.
struct Names {
    /// Those that are read as text.
    public: BTreeSet<String>,
    /// Handles that were got and are not used yet.
    got: RefCell<BTreeMap<String, Secret>>,
    /// Why the first one that is there cannot be used.
    refused: RefCell<Option<Error>>,
}

impl Names {
    fn new(public: BTreeSet<String>) -> Self {
        Self {
            public,
            got: RefCell::default(),
            refused: RefCell::default(),
        }
    }
}

impl Values for Names {
    fn value(&self, name: &str) -> Option<Value> {
        if self.public.contains(name) {
            match secrets::public(name) {
                Ok(text) => return Some(Value::Public(text)),
                Err(SecretError::NotFound) => return None,
                // The host does not call it public: as a secret it is refused,
                // with a message that says where it decides something.
                Err(_) => {}
            }
        }
        match optional(name) {
            Ok(secret) => {
                self.got.borrow_mut().insert(name.to_owned(), secret?);
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
    source: &'a Names,
    secrets: Vec<Secret>,
    names: BTreeMap<String, usize>,
}

impl<'a> Handles<'a> {
    fn new(source: &'a Names) -> Self {
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

impl Vault for Handles<'_> {
    fn named(&mut self, name: &str) -> Result<usize, Error> {
        if let Some(secret) = self.names.get(name) {
            return Ok(*secret);
        }
        let got = self.source.got.borrow_mut().remove(name);
        let secret = self.keep(got.map_or_else(|| secrets::get(name), Ok))?;
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
