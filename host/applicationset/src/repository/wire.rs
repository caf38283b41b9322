//! Git's smart HTTP protocol, one request at a time, for the git library.
//!
//! Invariant: a fetch never receives more bytes or takes more time than its limits allow.
//!
//! Security: redirects to another host or repository are refused. The library never sees a
//! credential, and credentials only go to the repository's host.

use std::io::{self, BufRead, Cursor, Read, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use gix::protocol::transport::client::blocking_io::http::{GetResponse, Http, PostBodyDataKind, PostResponse};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response};
use secrecy::ExposeSecret;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout_at;
use url::Url;
use zeroize::Zeroizing;

use super::Error;
use super::address::{ForbiddenAddress, Resolver};
use super::error::sanitized;
use super::fetch_context::{FetchContext, with_causes};
use super::location::Location;
use super::permission::AllowedRepository;
use tollgate_core::glob::normalize_repository;
use tollgate_state::{RepositoryAuth, TlsVerification};

/// Maximum size of a request's body, in bytes; the library only writes a few lines.
const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Maximum number of redirects to other spellings of the same repository.
const MAX_REDIRECTS: usize = 3;

/// Timeout for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A client for one repository and one fetch.
pub(super) struct GitHttpClient {
    sender: Arc<RequestSender>,
    base: Option<String>,
}

/// Sends requests.
struct RequestSender {
    runtime: Option<Runtime>,
    client: Client,
    context: Arc<FetchContext>,
    authorization: Option<HeaderValue>,
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
    /// Creates a client, and the URL it starts at.
    pub(super) fn new(permitted: &AllowedRepository, context: &Arc<FetchContext>) -> Result<(Self, Url), Error> {
        let Location::Remote(url) = permitted.location() else {
            return Err(context.protocol_error("it is not remote"));
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("repository-io")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| super::disk::disk_error(&error))?;
        let (interrupt, deadline) = (context.interrupt_handle(), context.deadline());
        runtime.spawn(async move {
            tokio::time::sleep_until(deadline).await;
            interrupt.store(true, Ordering::Relaxed);
        });
        let sender = RequestSender {
            runtime: Some(runtime),
            client: client(permitted)?,
            context: Arc::clone(context),
            authorization: authorization(permitted)?,
        };
        let http_client = Self {
            sender: Arc::new(sender),
            base: None,
        };
        Ok((http_client, url.clone()))
    }

    fn call(&mut self, (method, url): (Method, &str), headers: HeaderMap) -> io::Result<Arc<Mutex<HttpCall>>> {
        let url = Url::parse(url).map_err(io::Error::other)?;
        Ok(Arc::new(Mutex::new(HttpCall {
            sender: Arc::clone(&self.sender),
            method,
            url,
            headers,
            body: Vec::new(),
            answer: None,
            chunk: Bytes::new(),
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
            allows_special: permitted.allows_special_address(),
        })
        .user_agent(concat!("git/tollgate-", env!("CARGO_PKG_VERSION")));
    let unusable = |reason: &str| Error::Credential {
        url: permitted.url().to_owned(),
        reason: reason.to_owned(),
    };
    if let Some(secret) = permitted.secret() {
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

fn authorization(permitted: &AllowedRepository) -> Result<Option<HeaderValue>, Error> {
    let text = match permitted.secret().map(|secret| &secret.auth) {
        None | Some(RepositoryAuth::Anonymous) => return Ok(None),
        Some(RepositoryAuth::Unusable { reason }) => {
            return Err(Error::Credential {
                url: permitted.url().to_owned(),
                reason: reason.clone(),
            });
        }
        Some(RepositoryAuth::Bearer(token)) => Zeroizing::new(format!("Bearer {}", token.expose_secret())),
        Some(RepositoryAuth::Basic { username, password }) => {
            let pair = Zeroizing::new(format!("{}:{}", username.expose_secret(), password.expose_secret()));
            let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
            Zeroizing::new(format!("Basic {}", encoded.as_str()))
        }
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| Error::Credential {
        url: permitted.url().to_owned(),
        reason: "its credentials have characters no header can carry".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

impl RequestSender {
    /// Runs on the calling thread until the work is done or time is over.
    fn wait<T>(&self, work: impl Future<Output = reqwest::Result<T>>) -> io::Result<T> {
        let Some(runtime) = &self.runtime else {
            return Err(io::Error::other("closed"));
        };
        let deadline = self.context.deadline();
        match runtime.block_on(async { timeout_at(deadline, work).await }) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(self.context.record_as_io(self.broken(error))),
            Err(_) => Err(self.context.record_as_io(self.context.timeout_error())),
        }
    }

    fn broken(&self, error: reqwest::Error) -> Error {
        let error = error.without_url();
        let url = self.context.url().to_owned();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(current) = cause {
            if let Some(ForbiddenAddress(what)) = current.downcast_ref::<ForbiddenAddress>() {
                let hint = "; that is where its name leads";
                return Error::Address { url, what, hint };
            }
            cause = current.source();
        }
        Error::Unreachable {
            url,
            reason: sanitized(&with_causes(&error)),
        }
    }

    fn send(&self, call: &mut HttpCall) -> io::Result<Response> {
        let mut headers = call.headers.clone();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let body = std::mem::take(&mut call.body);
        let mut redirects = 0;
        loop {
            let request = self.client.request(call.method.clone(), call.url.clone());
            let request = request.headers(headers.clone()).body(body.clone());
            let answer = self.wait(request.send())?;
            let status = answer.status();
            if status.is_redirection() && call.method == Method::GET && redirects < MAX_REDIRECTS {
                redirects += 1;
                call.url = self.next(&call.url, &answer)?;
                continue;
            }
            let (url, status) = (self.context.url().to_owned(), status.as_u16());
            let error = match status {
                200..=299 => return Ok(answer),
                300..=399 => Error::Redirect { url },
                401 | 403 => Error::Refused { url, status },
                _ => Error::Status { url, status },
            };
            return Err(self.context.record_as_io(error));
        }
    }

    /// The target of a redirect, if it is the same repository in another spelling: with or without
    /// `.git`, or with a slash more or less. The caller's right and the credentials are for that
    /// repository only.
    fn next(&self, from: &Url, answer: &Response) -> io::Result<Url> {
        let text = answer.headers().get(LOCATION).and_then(|text| text.to_str().ok());
        let to = text.and_then(|text| from.join(text).ok());
        let same = |to: &Url| {
            from.origin() == to.origin()
                && to.username().is_empty()
                && to.password().is_none()
                && from.query() == to.query()
                && spelling(from).is_some()
                && spelling(from) == spelling(to)
        };
        match to.filter(same) {
            Some(to) => Ok(to),
            None => Err(self.context.record_as_io(Error::Redirect {
                url: self.context.url().to_owned(),
            })),
        }
    }
}

/// A canonical form of the URLs of git's `info/refs`.
fn spelling(url: &Url) -> Option<String> {
    let base = url.path().strip_suffix(REFS)?;
    Some(normalize_repository(base.trim_end_matches('/')))
}

const REFS: &str = "/info/refs";

/// A request that is sent when its answer is first read.
struct HttpCall {
    sender: Arc<RequestSender>,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Vec<u8>,
    answer: Option<Response>,
    chunk: Bytes,
}

impl HttpCall {
    fn answer(&mut self) -> io::Result<&mut Response> {
        if self.answer.is_none() {
            let sender = Arc::clone(&self.sender);
            self.answer = Some(sender.send(self)?);
        }
        self.answer.as_mut().ok_or_else(|| io::Error::other("no answer"))
    }

    /// The header fields that the library reads, one per line.
    fn header_lines(&mut self) -> io::Result<Vec<u8>> {
        let kind = self.answer()?.headers().get(reqwest::header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        Ok(format!("content-type: {kind}\n").into_bytes())
    }

    /// Fills `chunk` unless the answer has ended.
    fn fill(&mut self) -> io::Result<()> {
        let sender = Arc::clone(&self.sender);
        while self.chunk.is_empty() {
            if sender.context.is_over() {
                return Err(sender.context.record_as_io(sender.context.timeout_error()));
            }
            let answer = self.answer()?;
            let Some(chunk) = sender.wait(answer.chunk())? else {
                return Ok(());
            };
            sender.context.charge_received(chunk.len())?;
            self.chunk = chunk;
        }
        Ok(())
    }
}

fn lock_call(call: &Mutex<HttpCall>) -> MutexGuard<'_, HttpCall> {
    call.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Header fields of an answer as text.
pub(super) struct HeaderLines {
    call: Arc<Mutex<HttpCall>>,
    text: Option<Cursor<Vec<u8>>>,
}

impl HeaderLines {
    fn text(&mut self) -> io::Result<&mut Cursor<Vec<u8>>> {
        if self.text.is_none() {
            let lines = lock_call(&self.call).header_lines()?;
            self.text = Some(Cursor::new(lines));
        }
        self.text.as_mut().ok_or_else(|| io::Error::other("no header"))
    }
}

impl Read for HeaderLines {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.text()?.read(into)
    }
}

impl BufRead for HeaderLines {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.text()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Some(text) = &mut self.text {
            text.consume(amount);
        }
    }
}

/// The body of an answer.
pub(super) struct AnswerBody {
    call: Arc<Mutex<HttpCall>>,
    chunk: Bytes,
}

impl Read for AnswerBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for AnswerBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            let mut call = lock_call(&self.call);
            call.fill()?;
            self.chunk = std::mem::take(&mut call.chunk);
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, amount: usize) {
        self.chunk.advance(amount.min(self.chunk.len()));
    }
}

/// The body of a request, collected before it is sent.
pub(super) struct RequestBody(Arc<Mutex<HttpCall>>);

impl Write for RequestBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut call = lock_call(&self.0);
        if call.body.len().saturating_add(bytes.len()) > MAX_REQUEST_BYTES {
            return Err(io::Error::other("the request is too long"));
        }
        call.body.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Http for GitHttpClient {
    type Headers = HeaderLines;
    type ResponseBody = AnswerBody;
    type PostBody = RequestBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<HeaderLines, AnswerBody>> {
        let call = self
            .call((Method::GET, url), fields(headers))
            .map_err(gix::Error::from_error)?;
        {
            let mut call = lock_call(&call);
            call.answer().map_err(gix::Error::from_error)?;
            let base = call.url.as_str().rsplit_once(REFS).map(|(base, _)| base.to_owned());
            self.base = base.filter(|base| base != base_url.trim_end_matches('/'));
        }
        let (headers, body) = response_readers(&call);
        Ok(GetResponse { headers, body })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<HeaderLines, AnswerBody, RequestBody>> {
        let call = self
            .call((Method::POST, url), fields(headers))
            .map_err(gix::Error::from_error)?;
        let (headers, body) = response_readers(&call);
        Ok(PostResponse {
            post_body: RequestBody(call),
            headers,
            body,
        })
    }

    fn configure(&mut self, _config: &dyn std::any::Any) -> gix::Result {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.base.clone()
    }
}

fn response_readers(call: &Arc<Mutex<HttpCall>>) -> (HeaderLines, AnswerBody) {
    let headers = HeaderLines {
        call: Arc::clone(call),
        text: None,
    };
    let body = AnswerBody {
        call: Arc::clone(call),
        chunk: Bytes::new(),
    };
    (headers, body)
}

/// Parses the library's header lines, which never contain credentials.
fn fields(lines: impl IntoIterator<Item = impl AsRef<str>>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines {
        let Some((name, value)) = line.as_ref().split_once(':') else {
            continue;
        };
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_str(value.trim());
        if let (Ok(name), Ok(value)) = (name, value)
            && name != AUTHORIZATION
        {
            fields.insert(name, value);
        }
    }
    fields
}
