//! `uuid.parse`, as the library of OPA has it.

use std::collections::BTreeMap;
use std::fmt::Write;

use regorus::Value;

use super::encoding::digit;
use super::opa::text;

/// Units of 100 ns from October 15, 1582 to the year 1970.
const EPOCH: i64 = 122_192_928_000_000_000;
/// Number of digits and dashes of the common form.
const LENGTH: usize = 36;
const BYTES: usize = 16;

/// The number that a UUID is. `None` for what is none, also for OPA.
fn number(text: &str) -> Option<u128> {
    let text = text.as_bytes();
    let common = match text.len() {
        32 => return digits(text),
        LENGTH => text,
        45 => text
            .split_at_checked(9)
            .and_then(|(scheme, rest)| scheme.eq_ignore_ascii_case(b"urn:uuid:").then_some(rest))?,
        // Within braces. As in Go, any two bytes will do.
        38 => text.get(1..37)?,
        _ => return None,
    };
    let parts: Vec<&[u8]> = common.split(|byte| *byte == b'-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    if lengths != [8, 4, 4, 4, 12] {
        return None;
    }
    digits(&parts.concat())
}

fn digits(text: &[u8]) -> Option<u128> {
    text.iter()
        .try_fold(0, |number, byte| Some(number << 4 | u128::from(digit(*byte)?)))
}

/// `Value::Undefined` for a text that is no UUID.
pub(super) fn parse(arguments: &[Value]) -> Option<Value> {
    let [uuid] = arguments else { return None };
    let Some(number) = number(text(uuid)?) else {
        return Some(Value::Undefined);
    };
    let bytes = number.to_be_bytes();
    let bits = |first: usize, count: usize| {
        let shift = 8 * BYTES - first - count;
        i64::try_from(number >> shift & ((1 << count) - 1)).ok()
    };
    let version = bits(48, 4)?;
    let variant = match bits(64, 3)? {
        0..=3 => "Reserved",
        4 | 5 => "RFC4122",
        6 => "Microsoft",
        _ => "Future",
    };
    let mut fields = BTreeMap::from([("version", Value::from(version)), ("variant", Value::from(variant))]);
    if let 1 | 2 = version {
        let [.., first, second, third, fourth, fifth, sixth] = bytes;
        let node = [first, second, third, fourth, fifth, sixth];
        let mut shown = String::new();
        for (at, byte) in node.into_iter().enumerate() {
            let dash = if at == 0 { "" } else { "-" };
            write!(shown, "{dash}{byte:02x}").ok()?;
        }
        let scope = match first & 3 {
            3 => "local:multicast",
            1 => "global:multicast",
            2 => "local:unicast",
            _ => "global:unicast",
        };
        let ticks = bits(52, 12)? << 48 | bits(32, 16)? << 32 | bits(0, 32)?;
        let time = ticks.checked_sub(EPOCH)?.checked_mul(100)?;
        fields.extend([
            ("nodeid", Value::from(shown)),
            ("macvariables", Value::from(scope)),
            ("time", Value::from(time)),
            ("clocksequence", Value::from(bits(66, 14)?)),
        ]);
        if version == 2 {
            let domain = match bits(72, 8)? {
                0 => "Person".to_owned(),
                1 => "Group".to_owned(),
                2 => "Org".to_owned(),
                other => format!("Domain{other}"),
            };
            fields.extend([("domain", Value::from(domain)), ("id", Value::from(bits(0, 32)?))]);
        }
    }
    let fields = fields.into_iter().map(|(name, value)| (Value::from(name), value));
    Some(Value::from(fields.collect::<BTreeMap<_, _>>()))
}
