//! One fetch: lists the references, chooses one, receives the pack and opens it as a [`Checkout`]
//! in the cache.
//!
//! Invariant: no thread outlives its limits while it occupies a slot, and no object beyond the
//! limits is unpacked.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek as _, Write as _};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gix::ObjectId;
use gix::odb::pack;
use gix::progress::Discard;
use gix::protocol::fetch::{self, Arguments, Shallow, Tags, negotiate};
use gix::protocol::handshake::Ref;
use gix::protocol::transport::client::blocking_io::http::Transport;
use gix::protocol::transport::{Protocol, Service, client};
use gix::protocol::{Handshake, LsRefsCommand};
use tokio::time::Instant;

use super::cache::Checkout;
use super::disk::{DiskReservation, Folder, bytes_below, disk_error, library_disk_error};
use super::fetch_context::{FetchContext, with_causes};
use super::in_flight::{FetchKey, InFlightFetch};
use super::listing::{FetchTarget, choose, prefixes};
use super::pack::unpack_memory;
use super::permission::AllowedRepository;
use super::store::StoreInner;
use super::tree::open_options;
use super::wire::GitHttpClient;
use super::{Error, MAX_LISTING_BYTES, MAX_OBJECTS, MAX_UNPACKED_BYTES};

/// Extra time that a fetch may take to end cleanly.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// Larger files are not sent, if the server supports filters.
const BLOB_FILTER: &str = "blob:limit=10m";

type Http = Transport<GitHttpClient>;

/// Starts a fetch on its own thread; all waiting requests are notified when it ends.
pub(super) fn begin(
    shared: &Arc<StoreInner>,
    (key, permitted): (FetchKey, AllowedRepository),
    in_flight_fetch: &InFlightFetch,
) {
    let deadline = in_flight_fetch.started_at() + shared.limits.time;
    let completion = FetchCompletion {
        shared: Arc::clone(shared),
        key,
        outcome: None,
    };
    let thread = std::thread::Builder::new().name("repository".to_owned());
    // If no thread can be started, the closure is dropped, and its `completion` reports that.
    let _ = thread.spawn(move || {
        let mut completion = completion;
        let request = (&completion.key, &permitted);
        let mut outcome = fetch_checkout(&completion.shared, request, deadline);
        // Free the space of commits that nobody reads and retry.
        if matches!(outcome, Err(Error::DiskFull)) && completion.shared.evict_all() {
            outcome = fetch_checkout(&completion.shared, request, deadline);
        }
        completion.outcome = Some(outcome);
    });
}

/// Publishes the outcome when it is dropped, even if the thread panics or never starts.
struct FetchCompletion {
    shared: Arc<StoreInner>,
    key: FetchKey,
    outcome: Option<Result<Arc<Checkout>, Error>>,
}

impl Drop for FetchCompletion {
    fn drop(&mut self) {
        let broken = || {
            let reason = "the fetch broke off".to_owned();
            Err(Error::Disk { reason })
        };
        let outcome = self.outcome.take().unwrap_or_else(broken);
        let mut state = self.shared.state();
        let evicted = state.cache.insert_outcome(&self.key, &outcome, Instant::now());
        state.in_flight.end(&self.key, outcome);
        drop(state);
        self.shared.wake();
        drop(evicted);
    }
}

fn fetch_checkout(
    shared: &StoreInner,
    (key, permitted): (&FetchKey, &AllowedRepository),
    deadline: Instant,
) -> Result<Arc<Checkout>, Error> {
    let context = Arc::new(FetchContext::new(permitted.url(), (deadline, shared.limits.time)));
    let mut connection = RemoteConnection::open(permitted, &context)?;
    let target = connection.target(&key.revision)?;
    if let FetchTarget::Commit(commit) = target
        && let Some(kept) = shared.state().cache.commit(&key.repository, commit)
    {
        return Ok(kept);
    }
    let id = target.id();
    let folder = Folder::make(shared.fetch_directory.path())?;
    let mut reservation = DiskReservation::none(&shared.quota);
    let repository = empty(folder.path())?;
    connection.receive(&repository, id, (shared, &mut reservation))?;
    let commit = commit_of(&repository, id, (permitted.url(), &key.revision))?;
    let kept = shared.state().cache.commit(&key.repository, commit);
    if let Some(kept) = kept {
        return Ok(kept);
    }
    reservation.set(bytes_below(folder.path()));
    Ok(Arc::new(Checkout {
        repository: repository.into_sync(),
        commit,
        folder: folder.keep(),
        _reservation: reservation,
    }))
}

/// Follows a tag to its commit.
fn commit_of(repository: &gix::Repository, id: ObjectId, (url, revision): (&str, &str)) -> Result<ObjectId, Error> {
    let missing = || Error::Revision {
        url: url.to_owned(),
        revision: revision.to_owned(),
        hint: "; what is there is no commit",
    };
    let object = repository.find_object(id).map_err(|_| missing())?;
    let commit = object.peel_to_kind(gix::objs::Kind::Commit).map_err(|_| missing())?;
    Ok(commit.id)
}

/// Reads the server's greeting.
pub(super) fn greeting(transport: &mut impl client::blocking_io::Transport) -> gix::Result<Handshake> {
    // The library panics if a server of protocol 1 reports the target of a name that is not in its
    // list. Everything read from it so far is discarded.
    let greeted = catch_unwind(AssertUnwindSafe(|| {
        // `GitHttpClient` adds the credentials; there is nobody to ask for others.
        gix::protocol::handshake(transport, Service::UploadPack, |_| Ok(None), Vec::new(), &mut Discard)
    }));
    let broken = |_| std::io::Error::other("its list of references contradicts itself");
    greeted.map_err(broken).map_err(gix::Error::from_error)?
}

/// Lists the references that may match a revision.
pub(super) fn references(
    handshake: &mut Handshake,
    transport: &mut impl client::blocking_io::Transport,
    revision: &str,
) -> gix::Result<Vec<Ref>> {
    match handshake.refs.take() {
        Some(refs) => Ok(refs),
        None => {
            let command = LsRefsCommand::new(prefixes(revision), &handshake.capabilities, agent());
            command.invoke_blocking(transport, &mut Discard, false)
        }
    }
}

/// A connection to a repository, after the greeting.
struct RemoteConnection {
    transport: Http,
    context: Arc<FetchContext>,
    handshake: Handshake,
}

impl RemoteConnection {
    fn open(permitted: &AllowedRepository, context: &Arc<FetchContext>) -> Result<Self, Error> {
        context.allow(MAX_LISTING_BYTES);
        let (http_client, url) = GitHttpClient::new(permitted, context)?;
        let url = gix::url::parse(url.as_str()).map_err(|error| context.root_cause(&error))?;
        let mut transport = Transport::new_http(http_client, url, Protocol::V2, false);
        let handshake = greeting(&mut transport).map_err(|error| context.root_cause(&error))?;
        Ok(Self {
            transport,
            context: Arc::clone(context),
            handshake,
        })
    }

    /// Resolves a revision to a commit or tag.
    fn target(&mut self, revision: &str) -> Result<FetchTarget, Error> {
        if let Ok(id) = revision.to_lowercase().parse::<ObjectId>() {
            return Ok(FetchTarget::Object(id));
        }
        let listed = references(&mut self.handshake, &mut self.transport, revision);
        let refs = listed.map_err(|error| self.context.root_cause(&error))?;
        choose(&refs, revision).map_err(|hint| Error::Revision {
            url: self.context.url().to_owned(),
            revision: revision.to_owned(),
            hint,
        })
    }

    /// Fetches one object and everything below it, without its history.
    fn receive(
        &mut self,
        into: &gix::Repository,
        wanted: ObjectId,
        (shared, reservation): (&StoreInner, &mut DiskReservation),
    ) -> Result<(), Error> {
        self.context.allow(shared.limits.bytes);
        let context = Arc::clone(&self.context);
        let folder = into.objects.store_ref().path().join("pack");
        let shallow = Shallow::DepthAtRemote(NonZeroU32::MIN);
        let gix_context = fetch::Context {
            handshake: &mut self.handshake,
            transport: &mut self.transport,
            user_agent: agent(),
            trace_packetlines: false,
        };
        let options = fetch::Options {
            shallow_file: into.shallow_file().map_err(|error| context.root_cause(&error))?,
            shallow: &shallow,
            tags: Tags::None,
            reject_shallow_remote: false,
        };
        let received = gix::protocol::fetch(
            &mut Want(wanted),
            |reader, progress, interrupt| {
                let reader = check_pack_header(reader, &context)?;
                let refused = |error| gix::Error::from_error(context.record_as_io(error));
                let mut pack = spool(reader, &folder, (shared, reservation)).map_err(|error| match error {
                    SpoolError::Reading(error) => gix::Error::from_error(error),
                    SpoolError::Writing(error) => refused(error),
                })?;
                let rewound = |pack: &mut File| pack.rewind().map_err(|error| refused(disk_error(&error)));
                rewound(&mut pack)?;
                let bytes = unpack_memory(&mut BufReader::new(&pack), &context).map_err(refused)?;
                let _unpacking = shared.reserve_unpacking(bytes, &context).map_err(refused)?;
                rewound(&mut pack)?;
                write(BufReader::new(pack), &folder, (progress, interrupt)).map_err(|error| {
                    // The pack was complete and valid, so what fails now is the disk.
                    match library_disk_error(&with_causes(&error)) {
                        Error::DiskFull => refused(Error::DiskFull),
                        _ => error,
                    }
                })?;
                Ok(true)
            },
            Discard,
            context.interrupt(),
            gix_context,
            options,
        );
        match received.map_err(|error| context.root_cause(&error))? {
            Some(_) => Ok(()),
            None => Err(context.protocol_error("it sent nothing")),
        }
    }
}

fn agent() -> (&'static str, Option<String>) {
    (
        "agent",
        Some(concat!("git/tollgate-", env!("CARGO_PKG_VERSION")).to_owned()),
    )
}

/// Checks the pack's header and passes it on with the rest.
fn check_pack_header<'r>(reader: &'r mut dyn BufRead, context: &FetchContext) -> gix::Result<impl BufRead + use<'r>> {
    let mut header = [0; 12];
    reader.read_exact(&mut header).map_err(gix::Error::from_error)?;
    let (_, objects) = pack::data::header::decode(&header)?;
    if objects > MAX_OBJECTS {
        let error = Error::TooLarge {
            url: context.url().to_owned(),
            what: "objects",
            observed: u64::from(objects),
            allowed: u64::from(MAX_OBJECTS),
        };
        context.record(error);
        return Err(gix::Error::from_error(std::io::Error::other("too many objects")));
    }
    Ok(Cursor::new(header).chain(reader))
}

type ProgressAndInterrupt<'w> = (&'w mut dyn gix::DynNestedProgress, &'w std::sync::atomic::AtomicBool);

/// Unpacks and checks a pack, and writes it with an index.
pub(super) fn write(
    mut reader: impl BufRead,
    folder: &Path,
    (progress, interrupt): ProgressAndInterrupt<'_>,
) -> gix::Result<()> {
    let options = pack::bundle::write::Options {
        thread_limit: Some(1),
        iteration_mode: pack::data::input::Mode::Verify,
        alloc_limit_bytes: usize::try_from(MAX_UNPACKED_BYTES).ok(),
        ..pack::bundle::write::Options::default()
    };
    let written = pack::Bundle::write_to_directory(
        &mut reader,
        Some(folder),
        progress,
        interrupt,
        None::<gix::OdbHandle>,
        gix::hash::Kind::Sha1,
        options,
    )?;
    if let Some(keep) = written.keep_path {
        std::fs::remove_file(keep).map_err(gix::Error::from_error)?;
    }
    Ok(())
}

/// Asks for one object and offers none.
struct Want(ObjectId);

impl fetch::Negotiate for Want {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate {
            remote_ref_target_known: Vec::new(),
        })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _: &[bool]) -> bool {
        if arguments.can_use_filter() {
            arguments.filter(BLOB_FILTER);
        }
        arguments.want(self.0);
        true
    }

    fn one_round(
        &mut self,
        state: &mut negotiate::one_round::State,
        _: &mut Arguments,
        _: Option<&fetch::Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        let round = negotiate::Round {
            haves_sent: 0,
            in_vain: 0,
            haves_to_send: state.haves_to_send,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}

/// Why a pack was not written to disk.
enum SpoolError {
    Reading(std::io::Error),
    Writing(Error),
}

/// Writes a pack to an unnamed file as it arrives: what unpacking takes is only known once the
/// pack is complete.
fn spool(
    mut reader: impl BufRead,
    folder: &Path,
    (shared, reservation): (&StoreInner, &mut DiskReservation),
) -> Result<File, SpoolError> {
    let writing = |error: std::io::Error| SpoolError::Writing(disk_error(&error));
    let mut file = tempfile::tempfile_in(folder).map_err(writing)?;
    loop {
        let chunk = reader.fill_buf().map_err(SpoolError::Reading)?;
        if chunk.is_empty() {
            return Ok(file);
        }
        let length = chunk.len();
        // Counted twice, because the pack is written again, with an index, to be kept.
        let bytes = u64::try_from(length).unwrap_or(u64::MAX).saturating_mul(2);
        reservation.set(reservation.bytes().saturating_add(bytes));
        while shared.quota.is_exceeded() {
            if !shared.evict() {
                return Err(SpoolError::Writing(Error::DiskFull));
            }
        }
        file.write_all(chunk).map_err(writing)?;
        reader.consume(length);
    }
}

fn empty(folder: &Path) -> Result<gix::Repository, Error> {
    let made = gix::ThreadSafeRepository::init_opts(
        folder,
        gix::create::Kind::Bare,
        gix::create::Options::default(),
        open_options(),
    );
    let repository = made.map_err(|error| library_disk_error(&with_causes(&error)))?;
    Ok(repository.to_thread_local())
}
