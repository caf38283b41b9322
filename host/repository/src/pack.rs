//! Computes an upper bound on the memory that unpacking a received pack takes, before it is
//! unpacked. An object or a chain of deltas beyond the limits is refused. No object is held in
//! memory.
//!
//! Security: a delta of 70 bytes can make an object of [`MAX_UNPACKED_BYTES`], and the library
//! holds an object while deltas of it are left. A chain with a leaf beside each of its links holds
//! every link at once, so that a pack of less than a megabyte would take gigabytes. The library
//! bounds only each single allocation.

use std::io::{self, BufRead};

use gix::hash::Kind;
use gix::odb::pack::data::entry::Header;
use gix::odb::pack::data::{Entry, header};
use gix::zlib::Decompress;
use gix::zlib::stream::inflate;

use crate::count;
use crate::fetch_context::FetchContext;
use crate::{Error, MAX_DELTA_DEPTH, MAX_OBJECTS, MAX_UNPACKED_BYTES};

const HEADER_BYTES: usize = 12;

/// Maximum size of a delta's two sizes, in bytes.
const SIZES_BYTES: usize = 20;

/// Memory that the library keeps for each object while it makes an index, in bytes.
const OBJECT_BYTES: u64 = 128;

/// An object that was read, as a base of others.
#[derive(Clone, Copy, Debug)]
struct PackObject {
    /// Its offset in the pack.
    offset: u64,
    /// Total size of it and all its bases, in bytes.
    path: u64,
    /// Number of its bases.
    depth: u32,
    /// Index in [`PackTotals::segments`] of the delta by id that its chain begins with; `None` if the
    /// chain begins with a whole object.
    segment: Option<usize>,
}

#[derive(Debug, Default)]
struct PackTotals {
    /// Sorted by offset, because a pack is read in order.
    nodes: Vec<PackObject>,
    /// The longest path that begins with a whole object, in bytes.
    path: u64,
    /// The longest path below each delta that names its base by id, in bytes. Which object that is
    /// only shows once all are unpacked, so such a path may continue any other one.
    segments: Vec<u64>,
    /// Size of the largest object that a delta makes, in bytes.
    result: u64,
    /// Size of the largest delta's instructions, in bytes.
    instructions: u64,
    /// Size of the largest object as stored in the pack, in bytes.
    compressed: u64,
}

/// Sizes of one object's data, which was decompressed and discarded.
struct Inflated {
    start: [u8; SIZES_BYTES],
    length: usize,
    compressed: u64,
}

/// Reads a pack and returns the maximum number of bytes that unpacking it holds at once.
///
/// # Errors
/// An object is larger than [`MAX_UNPACKED_BYTES`]; a chain of deltas is longer than
/// [`MAX_DELTA_DEPTH`]; the pack is broken; time is over.
pub(crate) fn unpack_memory(pack: &mut impl BufRead, context: &FetchContext) -> Result<u64, Error> {
    let broken = |error: io::Error| context.root_cause(&error);
    let mut start = [0; HEADER_BYTES];
    pack.read_exact(&mut start).map_err(broken)?;
    let (_, objects) = header::decode(&start).map_err(|error| context.root_cause(&error))?;
    Error::check_bound(&context.url, "objects", objects, MAX_OBJECTS)?;
    let mut totals = PackTotals::default();
    let mut state = Decompress::new();
    let mut offset = count(HEADER_BYTES);
    for _ in 0..objects {
        if context.is_over() {
            return Err(context.timeout_error());
        }
        let entry = Entry::from_read(pack, offset, Kind::Sha1.len_in_bytes()).map_err(broken)?;
        let size = entry.decompressed_size;
        object_bounded(context, size)?;
        let inflated = inflate(pack, &mut state, size).map_err(broken)?;
        totals.add(&entry, offset, &inflated, context)?;
        let header = count(entry.header_size());
        offset = offset.saturating_add(header).saturating_add(inflated.compressed);
    }
    Ok(totals.total())
}

impl PackTotals {
    fn add(&mut self, entry: &Entry, offset: u64, inflated: &Inflated, context: &FetchContext) -> Result<(), Error> {
        self.compressed = self.compressed.max(inflated.compressed);
        let size = entry.decompressed_size;
        let (path, depth, segment) = match entry.header {
            Header::Commit | Header::Tree | Header::Blob | Header::Tag => (size, 0, None),
            Header::OfsDelta { base_distance } => {
                let base = Header::verified_base_pack_offset(offset, base_distance);
                let base = base.and_then(|base| self.at(base));
                let base = base.ok_or_else(|| context.protocol_error("a delta of its pack has no base"))?;
                let path = base.path.saturating_add(self.result(size, inflated, context)?);
                (path, base.depth.saturating_add(1), base.segment)
            }
            Header::RefDelta { .. } => {
                let result = self.result(size, inflated, context)?;
                self.segments.push(0);
                (result, 1, Some(self.segments.len().saturating_sub(1)))
            }
        };
        Error::check_bound(&context.url, "deltas upon each other", depth, MAX_DELTA_DEPTH)?;
        let longest = match segment {
            None => Some(&mut self.path),
            Some(number) => self.segments.get_mut(number),
        };
        if let Some(longest) = longest {
            *longest = path.max(*longest);
        }
        self.nodes.push(PackObject {
            offset,
            path,
            depth,
            segment,
        });
        Ok(())
    }

    /// The size of the object that a delta makes, in bytes.
    fn result(&mut self, instructions: u64, inflated: &Inflated, context: &FetchContext) -> Result<u64, Error> {
        let start = inflated.start.get(..inflated.length).unwrap_or_default();
        let sizes = number(start).and_then(|(_, rest)| number(rest));
        let (result, _) = sizes.ok_or_else(|| context.protocol_error("a delta of its pack has no sizes"))?;
        object_bounded(context, result)?;
        self.instructions = self.instructions.max(instructions);
        self.result = self.result.max(result);
        Ok(result)
    }

    fn at(&self, offset: u64) -> Option<PackObject> {
        let found = self.nodes.binary_search_by_key(&offset, |node| node.offset).ok()?;
        self.nodes.get(found).copied()
    }

    /// The sum of the longest paths, the data kept for the next object, an object as stored in the
    /// pack (doubled, because its buffer grows), and what is kept for all objects.
    fn total(&self) -> u64 {
        let of_segments = self.segments.iter().fold(0, |sum: u64, path| sum.saturating_add(*path));
        let parts = [
            self.path,
            of_segments,
            self.result,
            self.instructions,
            self.compressed.saturating_mul(2),
            count(self.nodes.len()).saturating_mul(OBJECT_BYTES),
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// Decompresses the data of an object, which must have `size` bytes.
fn inflate(pack: &mut impl BufRead, state: &mut Decompress, size: u64) -> io::Result<Inflated> {
    state.reset();
    let mut start = [0; SIZES_BYTES];
    let length = inflate::read(pack, state, &mut start)?;
    let mut thrown = [0; 16 * 1024];
    while state.total_out() <= size && inflate::read(pack, state, &mut thrown)? > 0 {}
    if state.total_out() != size {
        return Err(io::Error::other("an object of its pack is not of the size it says"));
    }
    Ok(Inflated {
        start,
        length,
        compressed: state.total_in(),
    })
}

/// Decodes a size in a delta, seven bits a byte, and returns the rest.
///
/// Source: gitformat-pack(5), "Size encoding".
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    // Seven bits each; more do not fit into the number.
    const MAX_BYTES: usize = 10;
    let last = bytes.iter().take(MAX_BYTES).position(|byte| byte & 0x80 == 0)?;
    let (digits, rest) = bytes.split_at_checked(last.saturating_add(1))?;
    let mut digits = digits.iter().rev().map(|byte| u64::from(byte & 0x7f));
    let value = digits.try_fold(0_u64, |value, digit| value.checked_mul(0x80)?.checked_add(digit))?;
    Some((value, rest))
}

fn object_bounded(context: &FetchContext, size: u64) -> Result<(), Error> {
    Error::check_bound(&context.url, "bytes of one object, unpacked,", size, MAX_UNPACKED_BYTES)
}

#[cfg(test)]
mod tests;
