//! One fetch: lists the references, chooses one, receives the pack and opens it as a [`Checkout`]
//! in the cache.
//!
//! Invariant: no thread outlives its limits while it occupies a slot, and no object beyond the
//! limits is unpacked.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek as _, Write as _};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
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

use crate::cache::Checkout;
use crate::count;
use crate::disk::{Folder, bytes_below, disk_error, library_disk_error};
use crate::fetch_context::{FetchContext, with_causes};
use crate::fetch_key::FetchKey;
use crate::in_flight::InFlightFetch;
use crate::listing::{choose, prefixes};
use crate::local::{NO_COMMIT, peeled};
use crate::location::Location;
use crate::pack::unpack_memory;
use crate::permission::AllowedRepository;
use crate::store_inner::StoreInner;
use crate::tree::open_options;
use crate::wire::{AGENT, GitHttpClient};
use crate::{Error, MAX_LISTING_BYTES, MAX_UNPACKED_BYTES};

/// Extra time that a fetch may take to end cleanly.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// Larger files are not sent, if the server supports filters.
const BLOB_FILTER: &str = "blob:limit=10m";

/// Starts a fetch on its own thread; all waiting requests are notified when it ends.
pub(crate) fn begin(
    shared: &Arc<StoreInner>,
    key: FetchKey,
    permitted: AllowedRepository,
    in_flight_fetch: &InFlightFetch,
) {
    let deadline = in_flight_fetch.started_at + shared.limits.time;
    let completion = FetchCompletion {
        shared: Arc::clone(shared),
        key,
        outcome: Err(Error::Disk {
            reason: "the fetch was interrupted".to_owned(),
        }),
    };
    let thread = std::thread::Builder::new().name("repository".to_owned());
    // If no thread can be started, the closure is dropped, and its `completion` reports that.
    let _ = thread.spawn(move || {
        let mut completion = completion;
        let mut outcome = fetch_checkout(&completion.shared, &completion.key, &permitted, deadline);
        // Free the space of commits that nobody reads and retry.
        if matches!(outcome, Err(Error::DiskFull)) && completion.shared.evict_all() {
            outcome = fetch_checkout(&completion.shared, &completion.key, &permitted, deadline);
        }
        completion.outcome = outcome;
    });
}

/// Publishes the outcome when it is dropped, even if the thread panics or never starts.
struct FetchCompletion {
    shared: Arc<StoreInner>,
    key: FetchKey,
    outcome: Result<Arc<Checkout>, Error>,
}

impl Drop for FetchCompletion {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let evicted = state.cache.insert_outcome(&self.key, &self.outcome);
        state.in_flight.end(&self.key, self.outcome.clone());
        drop(state);
        self.shared.changed.notify_all();
        drop(evicted);
    }
}

fn fetch_checkout(
    shared: &StoreInner,
    key: &FetchKey,
    permitted: &AllowedRepository,
    deadline: Instant,
) -> Result<Arc<Checkout>, Error> {
    let context = Rc::new(FetchContext::new(&permitted.url, deadline, shared.limits.time));
    let cached = |commit| shared.state().cache.commit(&key.repository, commit);
    let mut connection = RemoteConnection::open(permitted, &context)?;
    let wanted = connection.wanted(&key.revision)?;
    if let Some(kept) = cached(wanted) {
        return Ok(kept);
    }
    let mut folder = Folder::make(shared.fetch_directory.path(), &shared.quota)?;
    let repository = empty(&folder.path)?;
    connection.receive(&repository, wanted, shared, &mut folder)?;
    let no_commit = |_| Error::revision(&permitted.url, &key.revision, NO_COMMIT);
    let commit = peeled(&repository, wanted).map_err(no_commit)?;
    if let Some(kept) = cached(commit) {
        return Ok(kept);
    }
    folder.set_bytes(bytes_below(&folder.path));
    Ok(Arc::new(Checkout {
        repository: repository.into_sync(),
        commit,
        _folder: folder,
    }))
}

pub(crate) fn greeting(transport: &mut impl client::blocking_io::Transport) -> gix::Result<Handshake> {
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
pub(crate) fn references(
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

struct RemoteConnection {
    transport: Transport<GitHttpClient>,
    context: Rc<FetchContext>,
    handshake: Handshake,
}

impl RemoteConnection {
    fn open(permitted: &AllowedRepository, context: &Rc<FetchContext>) -> Result<Self, Error> {
        context.allow(MAX_LISTING_BYTES);
        let Location::Remote(url) = &permitted.location else {
            return Err(context.protocol_error("it is not remote"));
        };
        let http_client = GitHttpClient::new(permitted, context)?;
        let url = gix::url::parse(url.as_str()).map_err(|error| context.root_cause(&error))?;
        let mut transport = Transport::new_http(http_client, url, Protocol::V2, false);
        let handshake = greeting(&mut transport).map_err(|error| context.root_cause(&error))?;
        Ok(Self {
            transport,
            context: Rc::clone(context),
            handshake,
        })
    }

    /// Resolves a revision to a commit or tag.
    fn wanted(&mut self, revision: &str) -> Result<ObjectId, Error> {
        if let Ok(id) = revision.to_lowercase().parse() {
            return Ok(id);
        }
        let listed = references(&mut self.handshake, &mut self.transport, revision);
        let refs = listed.map_err(|error| self.context.root_cause(&error))?;
        choose(&refs, revision).map_err(|hint| Error::revision(&self.context.url, revision, hint))
    }

    /// Fetches one object and everything below it, without its history.
    fn receive(
        &mut self,
        into: &gix::Repository,
        wanted: ObjectId,
        shared: &StoreInner,
        folder: &mut Folder,
    ) -> Result<(), Error> {
        self.context.allow(shared.limits.bytes);
        let context = Rc::clone(&self.context);
        let packs = into.objects.store_ref().path().join("pack");
        let gix_context = fetch::Context {
            handshake: &mut self.handshake,
            transport: &mut self.transport,
            user_agent: agent(),
            trace_packetlines: false,
        };
        let options = fetch::Options {
            shallow_file: into.shallow_file().map_err(|error| context.root_cause(&error))?,
            shallow: &Shallow::DepthAtRemote(NonZeroU32::MIN),
            tags: Tags::None,
            reject_shallow_remote: false,
        };
        let refused = |error| gix::Error::from_error(context.record(error));
        let received = gix::protocol::fetch(
            &mut Want(wanted),
            |reader, progress, interrupt| {
                let mut pack = spool(reader, &packs, shared, folder, &refused)?;
                let rewound = |pack: &mut File| pack.rewind().map_err(|error| refused(disk_error(&error)));
                rewound(&mut pack)?;
                let bytes = unpack_memory(&mut BufReader::new(&pack), &context).map_err(refused)?;
                let _unpacking = shared.reserve_unpacking(bytes, &context).map_err(refused)?;
                rewound(&mut pack)?;
                write(BufReader::new(pack), &packs, progress, interrupt).map_err(|error| {
                    // The pack was complete and valid, so what fails now is the disk.
                    match library_disk_error(&with_causes(&error)) {
                        Error::DiskFull => refused(Error::DiskFull),
                        _ => error,
                    }
                })?;
                Ok(true)
            },
            Discard,
            &context.interrupt,
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
    ("agent", Some(AGENT.to_owned()))
}

/// Unpacks and checks a pack, and writes it with an index.
pub(crate) fn write(
    mut reader: impl BufRead,
    folder: &Path,
    progress: &mut dyn gix::DynNestedProgress,
    interrupt: &AtomicBool,
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

/// Writes a pack to an unnamed file as it arrives: what unpacking takes is only known once the
/// pack is complete. `refused` records an error of the disk.
fn spool(
    mut reader: impl BufRead,
    packs: &Path,
    shared: &StoreInner,
    folder: &mut Folder,
    refused: &dyn Fn(Error) -> gix::Error,
) -> gix::Result<File> {
    let writing = |error: std::io::Error| refused(disk_error(&error));
    let mut file = tempfile::tempfile_in(packs).map_err(writing)?;
    loop {
        let chunk = reader.fill_buf().map_err(gix::Error::from_error)?;
        if chunk.is_empty() {
            return Ok(file);
        }
        let length = chunk.len();
        // Counted twice, because the pack is written again, with an index, to be kept.
        let bytes = count(length).saturating_mul(2);
        folder.set_bytes(folder.bytes.saturating_add(bytes));
        while shared.quota.is_exceeded() {
            if !shared.evict() {
                return Err(refused(Error::DiskFull));
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
