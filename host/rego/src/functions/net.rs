//! `net.cidr_…`, with the errors of OPA.
//!
//! Go takes an IPv6 address that stands for one of IPv4 (`::ffff:0:0/96`) for either, depending on where
//! it comes from. Where one of them is or would be involved, there is no result.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use regorus::Value;

use super::opa::{MAX_RANGE, text};

const BITS: u8 = 128;
/// Bits of an IPv6 address before those of the IPv4 address that it stands for.
const MAPPED_BITS: u8 = 96;

/// A block of addresses. That of an IPv4 address is the IPv6 address that stands for it.
#[derive(Clone, Copy)]
struct Block {
    is_ipv4: bool,
    /// The address as it was given.
    address: u128,
    /// Of the IPv6 address.
    prefix: u8,
}

/// Why there is no block.
enum Problem {
    /// For OPA as well.
    Invalid,
    Mapped,
}

fn host_mask(prefix: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0)
}

fn is_mapped(address: u128) -> bool {
    address >> (BITS - MAPPED_BITS) == 0xffff
}

fn address(text: &str) -> Result<(bool, u128), Problem> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => Ok((true, address.to_ipv6_mapped().to_bits())),
        Ok(IpAddr::V6(address)) if is_mapped(address.to_bits()) => Err(Problem::Mapped),
        Ok(IpAddr::V6(address)) => Ok((false, address.to_bits())),
        Err(_) => Err(Problem::Invalid),
    }
}

impl Block {
    fn parse(text: &str) -> Result<Self, Problem> {
        let (before, length) = text.split_once('/').ok_or(Problem::Invalid)?;
        let (is_ipv4, address) = address(before)?;
        if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Problem::Invalid);
        }
        let length = length.parse::<u8>().map_err(|_| Problem::Invalid)?;
        let (before, most) = if is_ipv4 {
            (MAPPED_BITS, BITS - MAPPED_BITS)
        } else {
            (0, BITS)
        };
        if length > most {
            return Err(Problem::Invalid);
        }
        let prefix = before + length;
        Ok(Self {
            is_ipv4,
            address: address & !host_mask(prefix),
            prefix,
        })
    }

    fn of(value: &Value) -> Option<Self> {
        Self::parse(text(value)?).ok()
    }

    fn first(&self) -> u128 {
        self.address & !host_mask(self.prefix)
    }

    fn last(&self) -> u128 {
        self.address | host_mask(self.prefix)
    }

    fn contains(&self, is_ipv4: bool, address: u128) -> bool {
        self.is_ipv4 == is_ipv4 && (self.first()..=self.last()).contains(&address)
    }

    fn show(&self) -> Value {
        let prefix = if self.is_ipv4 {
            self.prefix - MAPPED_BITS
        } else {
            self.prefix
        };
        Value::from(format!("{}/{prefix}", show(self.is_ipv4, self.address)))
    }
}

fn show(is_ipv4: bool, address: u128) -> String {
    let address = Ipv6Addr::from_bits(address);
    match address.to_ipv4_mapped().filter(|_| is_ipv4) {
        Some(address) => address.to_string(),
        None => address.to_string(),
    }
}

pub(super) fn is_valid(arguments: &[Value]) -> Option<Value> {
    let [block] = arguments else { return None };
    let Some(block) = text(block) else {
        return Some(false.into());
    };
    match Block::parse(block) {
        Ok(_) => Some(true.into()),
        Err(Problem::Invalid) => Some(false.into()),
        Err(Problem::Mapped) => None,
    }
}

pub(super) fn intersects(arguments: &[Value]) -> Option<Value> {
    let [one, other] = arguments else { return None };
    let (one, other) = (Block::of(one)?, Block::of(other)?);
    let has_start_of = |one: Block, other: Block| one.contains(other.is_ipv4, other.address);
    Some((has_start_of(one, other) || has_start_of(other, one)).into())
}

pub(super) fn contains(arguments: &[Value]) -> Option<Value> {
    let [block, part] = arguments else { return None };
    block_contains(block, part).map(Value::from)
}

fn block_contains(block: &Value, part: &Value) -> Option<bool> {
    let (block, part) = (Block::of(block)?, text(part)?);
    match address(part) {
        Ok((is_ipv4, address)) => return Some(block.contains(is_ipv4, address)),
        Err(Problem::Mapped) => return None,
        Err(Problem::Invalid) => {}
    }
    let part = Block::parse(part).ok()?;
    let has = |address| block.contains(part.is_ipv4, address);
    Some(has(part.first()) && has(part.last()))
}

/// The block of an item of an operand of `net.cidr_contains_matches`.
fn block_in(item: &Value) -> Option<&Value> {
    match item {
        Value::String(_) => Some(item),
        Value::Array(parts) => parts.first(),
        _ => None,
    }
}

/// The blocks of an operand of `net.cidr_contains_matches`, each with what names it.
fn named(operand: &Value) -> Option<Vec<(&Value, Value)>> {
    match operand {
        Value::String(_) => Some(vec![(operand, operand.clone())]),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(at, item)| Some((block_in(item)?, Value::from(at))))
                .collect()
        }
        Value::Set(items) => items.iter().map(|item| Some((block_in(item)?, item.clone()))).collect(),
        Value::Object(entries) => {
            let entries = entries.iter();
            entries
                .map(|(key, item)| Some((block_in(item)?, key.clone())))
                .collect()
        }
        _ => None,
    }
}

/// `None` also for more than [`MAX_RANGE`] pairs.
pub(super) fn contains_matches(arguments: &[Value]) -> Option<Value> {
    let [blocks, parts] = arguments else { return None };
    let (blocks, parts) = (named(blocks)?, named(parts)?);
    let pairs = blocks.len().checked_mul(parts.len())?;
    if i64::try_from(pairs).ok()? > MAX_RANGE {
        return None;
    }
    let mut found = BTreeSet::new();
    for (block, name) in &blocks {
        for (part, part_name) in &parts {
            if block_contains(block, part)? {
                found.insert(Value::from(vec![name.clone(), part_name.clone()]));
            }
        }
    }
    Some(Value::from(found))
}

/// `None` also for more than [`MAX_RANGE`] addresses.
pub(super) fn expand(arguments: &[Value]) -> Option<Value> {
    let [block] = arguments else { return None };
    let block = Block::of(block)?;
    let (first, last) = (block.first(), block.last());
    if last - first >= u128::from(MAX_RANGE.unsigned_abs()) {
        return None;
    }
    let addresses = (first..=last).map(|address| Value::from(show(block.is_ipv4, address)));
    Some(Value::from(addresses.collect::<BTreeSet<_>>()))
}

/// Neighbouring blocks that are to become others.
struct Range {
    is_ipv4: bool,
    first: u128,
    last: u128,
    /// The block, while it is the only one.
    block: Option<Block>,
}

pub(super) fn merge(arguments: &[Value]) -> Option<Value> {
    let items: Vec<&Value> = match arguments {
        [Value::Array(items)] => items.iter().collect(),
        [Value::Set(items)] => items.iter().collect(),
        _ => return None,
    };
    let mut ranges = Vec::with_capacity(items.len());
    for item in items {
        let block = block_or_address(text(item)?)?;
        let range = Range {
            is_ipv4: block.is_ipv4,
            first: block.first(),
            last: block.last(),
            block: Some(block),
        };
        let neighbours = [
            range.first,
            range.last,
            range.first.saturating_sub(1),
            range.last.saturating_add(1),
        ];
        if !range.is_ipv4 && neighbours.into_iter().any(is_mapped) {
            return None;
        }
        ranges.push(range);
    }
    ranges.sort_by_key(|range| (range.last, range.first));
    let mut merged: Vec<Range> = Vec::new();
    while let Some(mut range) = ranges.pop() {
        // OPA looks for what is before from the last range on.
        while let Some(before) = ranges.pop_if(|before| range.reaches(before)) {
            if before.is_ipv4 != range.is_ipv4 {
                return None;
            }
            range.first = range.first.min(before.first);
            range.block = None;
        }
        merged.push(range);
    }
    let mut blocks = BTreeSet::new();
    for range in merged {
        match range.block {
            Some(block) => drop(blocks.insert(block.show())),
            None => blocks.extend(range.blocks()?.iter().map(Block::show)),
        }
    }
    Some(Value::from(blocks))
}

/// An IPv4 address without length stands for the block of its class.
fn block_or_address(text: &str) -> Option<Block> {
    let Ok(address) = text.parse::<Ipv4Addr>() else {
        return Block::parse(text).ok();
    };
    let class = match address.octets() {
        [0..0x80, ..] => 8,
        [0x80..0xc0, ..] => 16,
        _ => 24,
    };
    Some(Block {
        is_ipv4: true,
        address: address.to_ipv6_mapped().to_bits(),
        prefix: MAPPED_BITS + class,
    })
}

impl Range {
    /// Whether `before`, which ends no later, ends where this range starts, or within.
    fn reaches(&self, before: &Self) -> bool {
        let zero = if self.is_ipv4 {
            0xffff << (BITS - MAPPED_BITS)
        } else {
            0
        };
        let previous = if self.first == zero {
            zero
        } else {
            self.first.saturating_sub(1)
        };
        previous <= before.last
    }

    /// The fewest blocks that are this range.
    ///
    /// `None` where OPA takes the start of an IPv6 address apart wrongly.
    fn blocks(&self) -> Option<Vec<Block>> {
        let common = (self.first ^ self.last).leading_zeros();
        let start = self.first & !u128::MAX.checked_shr(common).unwrap_or(0);
        if !self.is_ipv4 && start != 0 && start >> (BITS - 8) == 0 {
            return None;
        }
        let (mut blocks, mut at) = (Vec::new(), self.first);
        loop {
            let mut prefix = BITS;
            while let Some(shorter) = prefix.checked_sub(1) {
                let mask = host_mask(shorter);
                if at & mask != 0 || at | mask > self.last {
                    break;
                }
                prefix = shorter;
            }
            blocks.push(Block {
                is_ipv4: self.is_ipv4,
                address: at,
                prefix,
            });
            let end = at | host_mask(prefix);
            if end >= self.last {
                return Some(blocks);
            }
            at = end + 1;
        }
    }
}
