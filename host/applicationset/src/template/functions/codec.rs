//! Template functions for base64, base32, hashes, JSON and YAML.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Args, Signature, json, write_yaml};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};
use crate::{json as counted, yaml};

pub(super) const NAMES: &[Signature] = &[
    (
        1,
        1,
        "adler32sum b32dec b32enc b64dec b64enc sha1sum sha256sum sha512sum",
    ),
    (
        1,
        1,
        "fromJson fromYaml fromYamlArray mustFromJson mustToJson mustToPrettyJson mustToRawJson",
    ),
    (1, 1, "toJson toPrettyJson toRawJson toYaml"),
];

pub(super) fn call(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "adler32sum" => {
            let text = args.text(0)?;
            heap.work(text.len())?;
            heap.text(adler32(text.as_bytes()).to_string())
        }
        "b32dec" => match b32dec(args.text(0)?) {
            Ok(bytes) => heap.bytes(&bytes),
            Err(at) => heap.text(format!("illegal base32 data at input byte {at}")),
        },
        "b32enc" => encoded(heap, args, b32enc),
        "b64dec" => b64dec(heap, args),
        "b64enc" => encoded(heap, args, |bytes| STANDARD.encode(bytes)),
        "fromJson" => match from_json(heap, args)? {
            Ok(value) => heap.json(&value),
            Err(_) => Ok(Value::Nil),
        },
        "fromYaml" => from_yaml(heap, args, ExpectedRoot::Map),
        "fromYamlArray" => from_yaml(heap, args, ExpectedRoot::List),
        "mustFromJson" => {
            let value = from_json(heap, args)?.map_err(|error| args.error(error))?;
            heap.json(&value)
        }
        "mustToJson" => to_json(heap, args, (false, true)),
        "mustToPrettyJson" => to_json(heap, args, (true, true)),
        "mustToRawJson" | "toRawJson" => to_json(heap, args, (false, false)),
        "sha1sum" => hash(heap, args, &digest::SHA1_FOR_LEGACY_USE_ONLY),
        "sha256sum" => hash(heap, args, &digest::SHA256),
        "sha512sum" => hash(heap, args, &digest::SHA512),
        // A value without a JSON form gives an empty string; exceeding a limit is still an error.
        "toJson" | "toPrettyJson" => match to_json(heap, args, (args.name == "toPrettyJson", true)) {
            Err(ExecError::Message(_)) => heap.text(""),
            other => other,
        },
        "toYaml" => write_yaml::call(heap, args),
        _ => Err(args.unknown()),
    }
}

fn encoded(heap: &mut Heap<'_>, args: &Args<'_>, encode: fn(&[u8]) -> String) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    heap.fits(text.len(), 2)?;
    heap.text(encode(text.as_bytes()))
}

/// As in Argo CD, invalid input gives the error's message as the result.
fn b64dec(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let text = args.text(0)?.replace(['\r', '\n'], "");
    let at = match STANDARD.decode(&text) {
        Ok(bytes) => return heap.bytes(&bytes),
        Err(base64::DecodeError::InvalidByte(at, _)) => at,
        Err(_) => text.len(),
    };
    heap.text(format!("illegal base64 data at input byte {at}"))
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn b32enc(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let number = (0..5).fold(0_u64, |number, index| {
            number << 8 | u64::from(chunk.get(index).copied().unwrap_or(0))
        });
        let letters = (chunk.len() * 8).div_ceil(5);
        for index in 0..8 {
            let digit = usize::try_from(number >> (35 - 5 * index) & 31).unwrap_or(0);
            let letter = BASE32.get(digit).copied().unwrap_or(b'A');
            text.push(if index < letters { char::from(letter) } else { '=' });
        }
    }
    text
}

/// The error is the position of the first invalid character.
fn b32dec(text: &str) -> Result<Vec<u8>, usize> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    if !text.len().is_multiple_of(8) {
        return Err(text.len());
    }
    let digits: Vec<u8> = text.iter().copied().take_while(|byte| *byte != b'=').collect();
    let padding = text.len() - digits.len();
    if !matches!(padding, 0 | 1 | 3 | 4 | 6) || text.iter().skip(digits.len()).any(|byte| *byte != b'=') {
        return Err(digits.len());
    }
    let mut bytes = Vec::with_capacity(digits.len() * 5 / 8);
    let (mut held, mut bits) = (0_u32, 0_u32);
    for (at, letter) in digits.iter().enumerate() {
        let digit = BASE32.iter().position(|known| known == letter).ok_or(at)?;
        held = (held << 5 | u32::try_from(digit).map_err(|_| at)?) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).map_err(|_| at)?);
        }
    }
    Ok(bytes)
}

fn hash(heap: &mut Heap<'_>, args: &Args<'_>, algorithm: &'static digest::Algorithm) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    heap.work(text.len())?;
    let mut hex = String::new();
    for byte in digest::digest(algorithm, text.as_bytes()).as_ref() {
        let _ = write!(hex, "{byte:02x}");
    }
    heap.text(hex)
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

/// - `style`: as for [`json::write`].
fn to_json(heap: &mut Heap<'_>, args: &Args<'_>, style: (bool, bool)) -> Result<Value, ExecError> {
    let text = json::write(heap, args, style)?;
    heap.text(text)
}

#[derive(Clone, Copy)]
enum ExpectedRoot {
    Map,
    List,
}

fn from_yaml(heap: &mut Heap<'_>, args: &Args<'_>, wanted: ExpectedRoot) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    heap.work(text.len().saturating_mul(64))?;
    let mut charged = 0_u64;
    let read = yaml::read(text, yaml::DuplicateKeys::LastWins, &mut |bytes| {
        charged = charged.saturating_add(bytes);
        heap.check_available(charged)
    });
    let value = read.map_err(|error| match error {
        yaml::Error::Syntax(what) => args.error(what),
        yaml::Error::Limit(limit) => limit,
    })?;
    match (wanted, &value) {
        (ExpectedRoot::Map, serde_json::Value::Null) => Ok(Value::Map(heap.map(ElementType::Any)?)),
        (ExpectedRoot::List, serde_json::Value::Null) => heap.list(ElementType::Any, Vec::new()),
        (ExpectedRoot::Map, serde_json::Value::Object(_)) | (ExpectedRoot::List, serde_json::Value::Array(_)) => {
            heap.json(&value)
        }
        (ExpectedRoot::Map, _) => Err(args.error("the YAML is no map")),
        (ExpectedRoot::List, _) => Err(args.error("the YAML is no list")),
    }
}

/// Parses a string; the inner error says what is wrong with it. The JSON value is dropped once it
/// is converted to a value of the heap: its memory must be available, but it is not charged
/// permanently.
fn from_json(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Result<serde_json::Value, String>, ExecError> {
    let text = args.text(0)?;
    heap.work(text.len())?;
    let mut charged = 0_u64;
    let read = counted::read(text, &mut |bytes| {
        charged = charged.saturating_add(bytes);
        heap.check_available(charged)
    });
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(yaml::Error::Syntax(what)) => Ok(Err(what)),
        Err(yaml::Error::Limit(limit)) => Err(limit),
    }
}
