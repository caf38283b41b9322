//! Splits the query of a rendered URL into names and values. Names are decoded, because the host
//! encodes them. Values stay encoded.
//!
//! Security: a secret is never part of a name.

use tollgate_provider::Error;
use tollgate_provider::encoding::unform;
use tollgate_template::Part;

/// Names and values of a query, in order. A name without `=` has an empty value and is sent as
/// `a=`.
pub(crate) fn pairs(query: Vec<Part>) -> Result<Vec<(String, Vec<Part>)>, Error> {
    let mut pairs = Pairs::default();
    for part in query {
        match part {
            Part::Text(text) => {
                let mut pieces = text.split('&');
                pairs.text(pieces.next().unwrap_or_default());
                for piece in pieces {
                    pairs.finish();
                    pairs.text(piece);
                }
            }
            part @ (Part::Secret(_) | Part::Applied { .. }) => pairs.secret(part)?,
        }
    }
    pairs.finish();
    Ok(pairs.done)
}

#[derive(Default)]
struct Pairs {
    done: Vec<(String, Vec<Part>)>,
    name: String,
    /// `None` before the `=`.
    value: Option<Vec<Part>>,
}

impl Pairs {
    /// Adds text without `&`.
    fn text(&mut self, text: &str) {
        if let Some(value) = &mut self.value {
            value.extend(plain(text));
            return;
        }
        match text.split_once('=') {
            Some((name, value)) => {
                self.name.push_str(name);
                self.value = Some(plain(value).into_iter().collect());
            }
            None => self.name.push_str(text),
        }
    }

    fn secret(&mut self, part: Part) -> Result<(), Error> {
        match &mut self.value {
            Some(value) => {
                value.push(part);
                Ok(())
            }
            None => {
                let name = part.first_secret().unwrap_or_default();
                let message =
                    format!("`url`: `{name}` is a secret and can be the value of a query parameter, not its name");
                Err(Error::config("template.secret_in_url", message))
            }
        }
    }

    fn finish(&mut self) {
        let name = std::mem::take(&mut self.name);
        let value = self.value.take();
        if !name.is_empty() || value.is_some() {
            self.done.push((unform(&name), value.unwrap_or_default()));
        }
    }
}

/// Percent-encodes the bytes that a query may not contain, as the URL standard does.
fn plain(text: &str) -> Option<Part> {
    if text.is_empty() {
        return None;
    }
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            0x21..=0x7e => result.push(char::from(byte)),
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(Part::Text(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.into())
    }

    fn secret() -> Part {
        Part::Secret("key".into())
    }

    #[test]
    fn a_query_is_split_at_ampersands() {
        let found = pairs(vec![
            text("a=1&&b%20c+d=x%20y z=&"),
            text("e"),
            text("=?/"),
            secret(),
            text("é&f&g=&h=i"),
        ]);
        let expected = [
            ("a", vec![text("1")]),
            ("b c d", vec![text("x%20y%20z=")]),
            ("e", vec![text("?/"), secret(), text("%C3%A9")]),
            ("f", vec![]),
            ("g", vec![]),
            ("h", vec![text("i")]),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(found, Ok(expected.to_vec()));
        assert_eq!(pairs(Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn a_secret_is_never_a_name() {
        for query in [
            vec![secret()],
            vec![text("a=1&"), secret(), text("=x")],
            vec![text("a"), secret()],
        ] {
            let failure = pairs(query).expect_err("a secret as a name");
            assert_eq!(failure.code, "template.secret_in_url");
            assert!(failure.message.contains("`key` is a secret"), "{}", failure.message);
        }
    }
}
