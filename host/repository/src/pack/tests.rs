//! Tests of small packs that contain large objects.

use std::time::Duration;

use gix::hash::Kind;
use gix::odb::pack::data::entry::Header;
use tokio::time::Instant;

use super::{OBJECT_BYTES, unpack_memory};
use crate::fetch_context::FetchContext;
use crate::fuzz::objects::Pack;
use crate::{Error, MAX_DELTA_DEPTH, MAX_UNPACKED_BYTES, MAX_UNPACKING_BYTES};

impl Pack {
    fn blob(&mut self, content: &[u8]) -> u64 {
        self.put(&Header::Blob, u64::try_from(content.len()).unwrap(), content)
    }

    /// A delta that copies all of a base of `base` bytes.
    fn delta(&mut self, of: u64, base: u64, result: u64) -> u64 {
        let content = [number(base), number(result), copies(base.min(result))].concat();
        let header = Header::OfsDelta {
            base_distance: self.end() - of,
        };
        self.put(&header, u64::try_from(content.len()).unwrap(), &content)
    }

    fn ref_delta(&mut self, base: u64) -> u64 {
        let content = [number(base), number(base), copies(base)].concat();
        let base_id = Kind::Sha1.null();
        let size = u64::try_from(content.len()).unwrap();
        self.put(&Header::RefDelta { base_id }, size, &content)
    }
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// Instructions that copy the first `bytes` of the base, 16 MiB each.
fn copies(bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes {
        let length = (bytes - at).min(0xff_ffff);
        all.push(0xff);
        all.extend(&u32::try_from(at).unwrap().to_le_bytes());
        all.extend(&u32::try_from(length).unwrap().to_le_bytes()[..3]);
        at += length;
    }
    all
}

fn context() -> FetchContext {
    let time = Duration::from_secs(60);
    FetchContext::new("https://git.example/app", Instant::now() + time, time)
}

fn memory_of(pack: Pack) -> Result<u64, Error> {
    unpack_memory(&mut pack.finish().as_slice(), &context())
}

/// A blob of zeros; each level has a leaf and the base of the next level.
fn bomb(levels: usize, size: u64) -> Pack {
    let mut pack = Pack::default();
    let mut base = pack.blob(&vec![0; usize::try_from(size).unwrap()]);
    for _ in 0..levels {
        pack.delta(base, size, size);
        base = pack.delta(base, size, size);
    }
    pack
}

#[test]
fn every_delta_of_a_chain_counts() {
    const SIZE: u64 = 1024 * 1024;
    let pack = bomb(8, SIZE);
    let bytes = pack.end();
    assert!(bytes < 16 * 1024, "{bytes}");
    let found = memory_of(pack).unwrap();
    // Eight levels above the blob, and the buffer for the next object.
    assert!((10 * SIZE..11 * SIZE).contains(&found), "{found}");
}

/// SECURITY: less than a megabyte can take gigabytes.
#[test]
fn a_small_pack_that_unpacks_to_gigabytes_is_detected() {
    let pack = bomb(16, MAX_UNPACKED_BYTES);
    assert!(pack.end() < 1024 * 1024, "{}", pack.end());
    let found = memory_of(pack).unwrap();
    assert!(found > (16 * MAX_UNPACKED_BYTES).max(MAX_UNPACKING_BYTES), "{found}");
}

#[test]
fn sibling_deltas_do_not_add_up() {
    const SIZE: u64 = 1024 * 1024;
    let mut pack = Pack::default();
    let base = pack.blob(&vec![0; usize::try_from(SIZE).unwrap()]);
    for _ in 0..50 {
        pack.delta(base, SIZE, SIZE);
    }
    let found = memory_of(pack).unwrap();
    assert!((3 * SIZE..4 * SIZE).contains(&found), "{found}");
}

/// A delta whose base is only known by its id may continue any chain.
#[test]
fn ref_deltas_are_counted_as_one_chain() {
    const SIZE: u64 = 1024 * 1024;
    let mut pack = Pack::default();
    pack.blob(&vec![0; usize::try_from(SIZE).unwrap()]);
    for _ in 0..8 {
        let named = pack.ref_delta(SIZE);
        pack.delta(named, SIZE, SIZE);
    }
    let found = memory_of(pack).unwrap();
    assert!((18 * SIZE..19 * SIZE).contains(&found), "{found}");
}

#[test]
fn ordinary_packs_need_little() {
    let mut pack = Pack::default();
    for file in 0..100_u8 {
        pack.blob(&[file; 100]);
    }
    let found = memory_of(pack).unwrap();
    assert!(
        (100 * OBJECT_BYTES..100 * OBJECT_BYTES + 1024).contains(&found),
        "{found}"
    );
    assert_eq!(memory_of(Pack::default()).unwrap(), 0);
}

#[test]
fn objects_above_the_size_limit_are_refused() {
    let mut whole = Pack::default();
    whole.put(&Header::Blob, MAX_UNPACKED_BYTES + 1, b"");
    let mut made = Pack::default();
    let base = made.blob(b"x");
    made.delta(base, 1, MAX_UNPACKED_BYTES + 1);
    for pack in [whole, made] {
        let error = memory_of(pack).unwrap_err();
        assert!(
            matches!(&error, Error::TooLarge { observed, allowed, .. } if *observed == allowed + 1),
            "{error}"
        );
    }
}

#[test]
fn delta_chains_have_a_maximum_depth() {
    let chain = |links: u32| {
        let mut pack = Pack::default();
        let mut base = pack.blob(b"x");
        for _ in 0..links {
            base = pack.delta(base, 1, 1);
        }
        memory_of(pack)
    };
    assert!(chain(MAX_DELTA_DEPTH).is_ok());
    let error = chain(MAX_DELTA_DEPTH + 1).unwrap_err().to_string();
    assert!(error.contains("deltas upon each other"), "{error}");
}

#[test]
fn malformed_packs_are_protocol_errors() {
    // A wrong size, too large and too small; no base; no sizes; truncated.
    let mut more = Pack::default();
    more.put(&Header::Blob, 3, b"four");
    let mut less = Pack::default();
    less.put(&Header::Blob, 5, b"four");
    let mut baseless = Pack::default();
    baseless.blob(b"x");
    baseless.put(&Header::OfsDelta { base_distance: 1 }, 2, &[1, 1]);
    let mut endless = Pack::default();
    let base = endless.blob(b"x");
    let distance = endless.end() - base;
    endless.put(
        &Header::OfsDelta {
            base_distance: distance,
        },
        3,
        &[0xff, 0xff, 0xff],
    );
    for pack in [more, less, baseless, endless] {
        let error = memory_of(pack).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
    let mut whole = Pack::default();
    whole.blob(&[7; 1000]);
    let whole = whole.finish();
    for length in 0..16 {
        unpack_memory(&mut &whole[..length], &context()).unwrap_err();
    }
}

#[test]
fn an_interrupted_fetch_reads_nothing() {
    let mut pack = Pack::default();
    pack.blob(b"x");
    let interrupted = context();
    interrupted.interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
    let error = unpack_memory(&mut pack.finish().as_slice(), &interrupted).unwrap_err();
    assert!(matches!(error, Error::Time { .. }), "{error}");
}
