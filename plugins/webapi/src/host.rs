//! The host's functions: secrets, network, clock.
//!
//! In: a [`Plan`]. Out: a credential. Never: a decision that could be made
//! without the host, for those are tested natively.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_provider::bindings::exports::tollgate::plugin::credentials::Credential;
use tollgate_provider::bindings::tollgate::plugin::secrets::{Encoding, Part, Secret, SecretError, SecretRef};
use tollgate_provider::bindings::tollgate::plugin::{clock, egress, json_path, secrets};
use tollgate_template::{Value, Values};

use crate::answer::{Seen, unsent, unusable};
use crate::ask::{Ask, ask};
use crate::config::{Method, Plan};
use crate::failure::Failure;
use crate::lower::{Piece, Vault};

/// Asks for a token.
pub(crate) fn mint(plan: Plan) -> Result<Credential, Failure> {
    let names = Names::new(plan.public_names());
    let mut handles = Handles::new(&names);
    let rendered = ask(&plan, &names, &mut handles);
    names.refused.take().map_or(Ok(()), Err)?;
    let wanted = rendered?;
    // Lifetimes count from before the request: the issuer's clock started then.
    let now = clock::now();
    let response = send(wanted, &handles, &plan.token_path)?;
    let seen = Seen {
        status: response.status,
        headers: &response.headers,
        body: &response.body,
    };
    let token = response.captured.into_iter().next().flatten();
    let Some(token) = token.filter(|_| seen.is_success()) else {
        return Err(seen.failure(&plan.token_path, now));
    };
    let select = |path: &str| json_path::select(&response.body, path).ok().flatten();
    let end = plan.expiry.end(now, &plan.token_path, &select);
    let mut warnings = plan.warnings;
    warnings.extend(end.warning);
    Ok(Credential {
        token: Some(token),
        certificate: None,
        headers: Vec::new(),
        expires_at: end.at,
        cacheable: !end.over,
        revocation: None,
        warnings,
    })
}

fn send(wanted: Ask, handles: &Handles<'_>, token_path: &str) -> Result<egress::Response, Failure> {
    let headers = wanted.headers.iter().map(|(name, value)| {
        let value = handles.parts(value)?;
        Ok(egress::Header {
            name: name.clone(),
            value,
        })
    });
    let headers = headers.collect::<Result<_, Failure>>()?;
    let query = wanted
        .query
        .iter()
        .map(|(name, value)| Ok((name.clone(), handles.parts(value)?)));
    let query = query.collect::<Result<_, Failure>>()?;
    let request = egress::Request {
        method: match wanted.method {
            Method::Get => egress::Method::Get,
            Method::Post => egress::Method::Post,
            Method::Put => egress::Method::Put,
        },
        url: wanted.url,
        query,
        headers,
        body: handles.parts(&wanted.body)?,
        capture: vec![token_path.to_owned()],
        timeout_ms: 0,
    };
    egress::send(&request).map_err(|error| unsent(&error))
}

/// The values of the cluster's Secret, by name.
struct Names {
    /// Those that are read as text.
    public: BTreeSet<String>,
    /// Handles that were got and are not used yet.
    got: RefCell<BTreeMap<String, Secret>>,
    /// Why the first one that is there cannot be used.
    refused: RefCell<Option<Failure>>,
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
        match secrets::get(name) {
            Ok(secret) => {
                self.got.borrow_mut().insert(name.to_owned(), secret);
                Some(Value::Secret)
            }
            Err(SecretError::NotFound) => None,
            Err(error) => {
                let mut failure = unusable(error);
                failure.message = format!("`{name}`: {}", failure.message);
                self.refused.borrow_mut().get_or_insert(failure);
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

    fn keep(&mut self, secret: Result<Secret, SecretError>) -> Result<usize, Failure> {
        self.secrets.push(secret.map_err(unusable)?);
        Ok(self.secrets.len() - 1)
    }

    fn handle(&self, secret: usize) -> Result<&Secret, Failure> {
        self.secrets.get(secret).ok_or_else(|| unusable(SecretError::NotFound))
    }

    fn parts(&self, pieces: &[Piece]) -> Result<Vec<Part<'_>>, Failure> {
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
    fn named(&mut self, name: &str) -> Result<usize, Failure> {
        if let Some(secret) = self.names.get(name) {
            return Ok(*secret);
        }
        let got = self.source.got.borrow_mut().remove(name);
        let secret = self.keep(got.map_or_else(|| secrets::get(name), Ok))?;
        self.names.insert(name.to_owned(), secret);
        Ok(secret)
    }

    fn compose(&mut self, pieces: &[Piece], encoding: Encoding) -> Result<usize, Failure> {
        let composed = secrets::compose(&self.parts(pieces)?, encoding);
        self.keep(composed)
    }

    fn trim(&mut self, secret: usize) -> Result<usize, Failure> {
        let trimmed = secrets::trim(self.handle(secret)?);
        self.keep(trimmed)
    }
}
