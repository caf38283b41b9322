//! Git's smart HTTP protocol, one request at a time, for the git library.
//!
//! Invariant: a fetch never receives more bytes or takes more time than its limits allow.
//!
//! Security: redirects to another host or repository are refused. The library never sees a
//! credential, and credentials only go to the repository's host.

use std::cell::RefCell;
use std::error::Error as _;
use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use gix::protocol::transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response};
use secrecy::ExposeSecret;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout_at;
use url::Url;
use zeroize::Zeroizing;

use crate::Error;
use crate::address::{ForbiddenAddress, Resolver};
use crate::error::sanitized;
use crate::fetch_context::{FetchContext, with_causes};
use crate::permission::AllowedRepository;
use tollgate_core::glob::normalize_repository;
use tollgate_objects::{RepositoryAuth, TlsVerification};

pub(crate) const AGENT: &str = concat!("git/tollgate-", env!("CARGO_PKG_VERSION"));

/// Maximum size of a request's body, in bytes; the library only writes a few lines.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Maximum number of redirects to other spellings of the same repository.
const MAX_REDIRECTS: usize = 3;

const CONNECT_TIME: Duration = Duration::from_secs(10);

pub(crate) struct GitHttpClient {
    sender: Rc<RequestSender>,
    base: Option<String>,
}

struct RequestSender {
    runtime: Option<Runtime>,
    client: Client,
    context: Rc<FetchContext>,
}

impl Drop for RequestSender {
    fn drop(&mut self) {
        // A name that is still being resolved must not block the thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl GitHttpClient {
    pub(crate) fn new(permitted: &AllowedRepository, context: &Rc<FetchContext>) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("repository-io")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| crate::disk::disk_error(&error))?;
        let (interrupt, deadline) = (Arc::clone(&context.interrupt), context.deadline);
        runtime.spawn(async move {
            tokio::time::sleep_until(deadline).await;
            interrupt.store(true, Ordering::Relaxed);
        });
        let sender = RequestSender {
            runtime: Some(runtime),
            client: client(permitted)?,
            context: Rc::clone(context),
        };
        Ok(Self {
            sender: Rc::new(sender),
            base: None,
        })
    }

    fn call(
        &self,
        method: Method,
        url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<Rc<RefCell<HttpCall>>> {
        Ok(Rc::new(RefCell::new(HttpCall {
            sender: Rc::clone(&self.sender),
            method,
            url: Url::parse(url).map_err(gix::Error::from_error)?,
            headers: fields(headers),
            body: Vec::new(),
            answer: None,
        })))
    }
}

fn client(permitted: &AllowedRepository) -> Result<Client, Error> {
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .http1_only()
        .connect_timeout(CONNECT_TIME)
        .dns_resolver(Resolver {
            allows_special: permitted.allows_special_address,
        })
        .user_agent(AGENT);
    let unusable = |reason: &str| Error::Credential {
        url: permitted.url.clone(),
        reason: reason.to_owned(),
    };
    if let Some(secret) = &permitted.secret {
        let authorization = match &secret.auth {
            RepositoryAuth::Anonymous => None,
            RepositoryAuth::Unusable { reason } => return Err(unusable(reason)),
            RepositoryAuth::Bearer(token) => Some(Zeroizing::new(format!("Bearer {}", token.expose_secret()))),
            RepositoryAuth::Basic { username, password } => {
                let pair = Zeroizing::new(format!("{}:{}", username.expose_secret(), password.expose_secret()));
                let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
                Some(Zeroizing::new(format!("Basic {}", encoded.as_str())))
            }
        };
        if let Some(text) = authorization {
            let value = HeaderValue::from_str(&text);
            let mut value = value.map_err(|_| unusable("its credentials have characters no header can carry"))?;
            value.set_sensitive(true);
            builder = builder.default_headers(HeaderMap::from_iter([(AUTHORIZATION, value)]));
        }
        if secret.verification == TlsVerification::Off {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some((chain, key)) = &secret.client_certificate {
            let pem = Zeroizing::new(format!("{}\n{}", chain.expose_secret(), key.expose_secret()));
            let identity = reqwest::Identity::from_pem(pem.as_bytes());
            builder = builder.identity(identity.map_err(|_| unusable("its client certificate is not usable PEM"))?);
        }
    }
    builder.build().map_err(|_| unusable("its TLS settings are not usable"))
}

impl RequestSender {
    /// Runs on the calling thread until the work is done or time is over.
    fn wait<T>(&self, work: impl Future<Output = reqwest::Result<T>>) -> io::Result<T> {
        let Some(runtime) = &self.runtime else {
            return Err(io::Error::other("closed"));
        };
        match runtime.block_on(async { timeout_at(self.context.deadline, work).await }) {
            Ok(done) => done.map_err(|error| self.context.record(self.broken(error))),
            Err(_) => Err(self.context.record(self.context.timeout_error())),
        }
    }

    fn broken(&self, error: reqwest::Error) -> Error {
        let error = error.without_url();
        let url = self.context.url.clone();
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        match causes.find_map(|cause| cause.downcast_ref::<ForbiddenAddress>()) {
            Some(ForbiddenAddress(what)) => {
                let hint = "; that is where its name leads";
                Error::Address { url, what, hint }
            }
            None => Error::Unreachable {
                url,
                reason: sanitized(&with_causes(&error)),
            },
        }
    }

    fn send(&self, call: &mut HttpCall) -> io::Result<Response> {
        let mut redirects = 0;
        loop {
            let request = self.client.request(call.method.clone(), call.url.clone());
            let request = request
                .headers(call.headers.clone())
                .body(std::mem::take(&mut call.body));
            let answer = self.wait(request.send())?;
            let url = self.context.url.clone();
            let error = match answer.status().as_u16() {
                200..=299 => return Ok(answer),
                300..=399 => match same_repository(&call.url, &answer) {
                    // Only a `GET` has no body to send again.
                    Some(next) if call.method == Method::GET && redirects < MAX_REDIRECTS => {
                        redirects += 1;
                        call.url = next;
                        continue;
                    }
                    Some(_) | None => Error::Redirect { url },
                },
                status @ (401 | 403) => Error::Refused { url, status },
                status => Error::Status { url, status },
            };
            return Err(self.context.record(error));
        }
    }
}

/// The target of a redirect, if it is the same repository in another spelling: with or without
/// `.git`, or with a slash more or less. The caller's right and the credentials are for that
/// repository only.
fn same_repository(from: &Url, answer: &Response) -> Option<Url> {
    let text = answer.headers().get(LOCATION)?.to_str().ok()?;
    let to = from.join(text).ok()?;
    let is_same = from.origin() == to.origin()
        && to.username().is_empty()
        && to.password().is_none()
        && from.query() == to.query()
        && spelling(from)? == spelling(&to)?;
    is_same.then_some(to)
}

/// A canonical form of the URLs of git's `info/refs`.
fn spelling(url: &Url) -> Option<String> {
    let base = url.path().strip_suffix(REFS)?;
    Some(normalize_repository(base.trim_end_matches('/')))
}

const REFS: &str = "/info/refs";

/// A request that is sent when its answer is first read.
struct HttpCall {
    sender: Rc<RequestSender>,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
    answer: Option<Response>,
}

impl HttpCall {
    fn answer(&mut self) -> io::Result<&mut Response> {
        let answer = match self.answer.take() {
            Some(answer) => answer,
            None => Rc::clone(&self.sender).send(self)?,
        };
        Ok(self.answer.insert(answer))
    }

    /// The only header field that the library reads, as a line; empty the second time.
    fn content_type(&mut self) -> io::Result<Bytes> {
        let kind = self.answer()?.headers_mut().remove(CONTENT_TYPE);
        let line = kind.and_then(|kind| Some(format!("content-type: {}\n", kind.to_str().ok()?)));
        Ok(line.unwrap_or_default().into())
    }

    /// The next part of the body; empty at its end.
    fn chunk(&mut self) -> io::Result<Bytes> {
        let sender = Rc::clone(&self.sender);
        loop {
            if sender.context.is_over() {
                return Err(sender.context.record(sender.context.timeout_error()));
            }
            let Some(chunk) = sender.wait(self.answer()?.chunk())? else {
                return Ok(Bytes::new());
            };
            sender.context.charge_received(chunk.len())?;
            if !chunk.is_empty() {
                return Ok(chunk);
            }
        }
    }
}

/// The header lines or the body of an answer.
pub(crate) struct AnswerReader {
    call: Rc<RefCell<HttpCall>>,
    /// Returns the next part; empty at the end.
    next: fn(&mut HttpCall) -> io::Result<Bytes>,
    part: Bytes,
}

impl Read for AnswerReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for AnswerReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.part.is_empty() {
            self.part = (self.next)(&mut self.call.borrow_mut())?;
        }
        Ok(&self.part)
    }

    fn consume(&mut self, amount: usize) {
        self.part.advance(amount.min(self.part.len()));
    }
}

/// The body of a request, collected before it is sent.
pub(crate) struct RequestBody(Rc<RefCell<HttpCall>>);

impl Write for RequestBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let body = &mut self.0.borrow_mut().body;
        if body.len().saturating_add(bytes.len()) > MAX_REQUEST_BYTES {
            return Err(io::Error::other("the request is too long"));
        }
        body.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Http for GitHttpClient {
    type Headers = AnswerReader;
    type ResponseBody = AnswerReader;
    type PostBody = RequestBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<AnswerReader, AnswerReader>> {
        let call = self.call(Method::GET, url, headers)?;
        call.borrow_mut().answer().map_err(gix::Error::from_error)?;
        let base = call
            .borrow()
            .url
            .as_str()
            .rsplit_once(REFS)
            .map(|(base, _)| base.to_owned());
        self.base = base.filter(|base| base != base_url.trim_end_matches('/'));
        Ok(answer_readers(call).into())
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<AnswerReader, AnswerReader, RequestBody>> {
        Ok(answer_readers(self.call(Method::POST, url, headers)?))
    }

    fn configure(&mut self, _config: &dyn std::any::Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.base.clone()
    }
}

fn answer_readers(call: Rc<RefCell<HttpCall>>) -> PostResponse<AnswerReader, AnswerReader, RequestBody> {
    let reader = |next| AnswerReader {
        call: Rc::clone(&call),
        next,
        part: Bytes::new(),
    };
    PostResponse {
        headers: reader(HttpCall::content_type),
        body: reader(HttpCall::chunk),
        post_body: RequestBody(call),
    }
}

/// Parses the library's header lines, which never contain credentials.
fn fields(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let parse = |line: &str| -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = line.split_once(':')?;
        Some((name.parse().ok()?, value.trim().parse().ok()?))
    };
    let parsed = lines.into_iter().filter_map(|line| parse(line.as_ref()));
    parsed.filter(|(name, _)| name != AUTHORIZATION).collect()
}
