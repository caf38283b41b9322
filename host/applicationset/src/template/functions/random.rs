//! Template functions for random strings.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Args;
use crate::template::ExecError;
use crate::template::value::{Heap, Value};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "randAlpha" => letters(heap, args, u8::is_ascii_alphabetic),
        "randAlphaNum" => letters(heap, args, u8::is_ascii_alphanumeric),
        "randAscii" => letters(heap, args, |byte| (32..127).contains(byte)),
        "randBytes" => {
            let count = args.count(0)?;
            heap.fits(count, 2)?;
            let mut bytes = vec![0; count];
            rand::fill(&mut bytes).map_err(|_| args.error("no random bytes"))?;
            heap.text(STANDARD.encode(bytes))
        }
        "randInt" => {
            let (from, to) = (args.int(0)?, args.int(1)?);
            let span = to.checked_sub(from).and_then(|span| u64::try_from(span).ok());
            let span = span.filter(|span| *span > 0);
            let span = span.ok_or_else(|| args.error("the second number must be above the first"))?;
            let offset = i64::try_from(number(args)? % span).map_err(|_| args.error("out of range"))?;
            Ok(Value::Int(from.wrapping_add(offset)))
        }
        "randNumeric" => letters(heap, args, u8::is_ascii_digit),
        "shuffle" => shuffle(heap, args),
        "uuidv4" => heap.text(uuid::Builder::from_random_bytes(random(args)?).into_uuid().to_string()),
        _ => Err(args.unknown()),
    }
}

fn random<const COUNT: usize>(args: &Args<'_>) -> Result<[u8; COUNT], ExecError> {
    let mut bytes = [0; COUNT];
    rand::fill(&mut bytes).map_err(|_| args.error("no random bytes"))?;
    Ok(bytes)
}

fn number(args: &Args<'_>) -> Result<u64, ExecError> {
    random(args).map(u64::from_le_bytes)
}

fn letters(heap: &Heap<'_>, args: &Args<'_>, wanted: fn(&u8) -> bool) -> Result<Value, ExecError> {
    let count = args.count(0)?;
    heap.fits(count, 2)?;
    let mut text = String::with_capacity(count);
    while text.len() < count {
        heap.work(4096)?;
        let bytes = random::<1024>(args)?;
        // Rejects what is not wanted rather than mapping it, so that each letter is equally likely.
        let chosen = bytes.iter().map(|byte| byte & 0x7f).filter(wanted).map(char::from);
        text.extend(chosen.take(count - text.len()));
    }
    heap.text(text)
}

fn shuffle(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut letters: Vec<char> = args.text(0)?.chars().collect();
    heap.fits(letters.len(), 16)?;
    for last in (1..letters.len()).rev() {
        heap.step()?;
        let bound = u64::try_from(last + 1).unwrap_or(u64::MAX);
        let other = usize::try_from(number(args)? % bound).unwrap_or(0);
        letters.swap(last, other);
    }
    heap.text(letters.into_iter().collect::<String>())
}
