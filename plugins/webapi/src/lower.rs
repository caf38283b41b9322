//! Rendered parts to parts over handles.
//!
//! In: part trees with secrets by name. Out: a flat list of texts and handles.
//! Never: bytes of a secret; the host does what the tree says.

use tollgate_provider::{Encoding, Error};
use tollgate_template::{Operation, Part};

/// A piece of a header, query or body. Secrets are numbers of the [`Vault`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Secret(usize, Encoding),
}

/// Who keeps the handles.
pub(crate) trait Vault {
    /// The secret called `name`.
    fn named(&mut self, name: &str) -> Result<usize, Error>;

    /// The pieces joined.
    fn compose(&mut self, pieces: &[Piece], encoding: Encoding) -> Result<usize, Error>;

    /// The secret without white space at both ends.
    fn trim(&mut self, secret: usize) -> Result<usize, Error>;
}

/// Flattens `parts`, with as few compositions as the tree needs.
pub(crate) fn lower(parts: Vec<Part>, vault: &mut dyn Vault) -> Result<Vec<Piece>, Error> {
    parts.into_iter().map(|part| lower_one(part, vault)).collect()
}

fn lower_one(part: Part, vault: &mut dyn Vault) -> Result<Piece, Error> {
    match part {
        Part::Text(text) => Ok(Piece::Text(text)),
        Part::Secret(name) => Ok(Piece::Secret(vault.named(&name)?, Encoding::Raw)),
        Part::Applied { operation, parts } => {
            let whole = whole(lower(parts, vault)?, vault)?;
            match encoding(operation) {
                Some(encoding) => Ok(Piece::Secret(whole, encoding)),
                None => Ok(Piece::Secret(vault.trim(whole)?, Encoding::Raw)),
            }
        }
    }
}

/// The pieces as one secret that is not encoded any more.
fn whole(pieces: Vec<Piece>, vault: &mut dyn Vault) -> Result<usize, Error> {
    match pieces.as_slice() {
        [Piece::Secret(secret, Encoding::Raw)] => Ok(*secret),
        pieces => vault.compose(pieces, Encoding::Raw),
    }
}

/// The host's encoding; none for `trim`, which is a call of its own.
fn encoding(operation: Operation) -> Option<Encoding> {
    match operation {
        Operation::Form => Some(Encoding::Form),
        Operation::Percent => Some(Encoding::Percent),
        Operation::Json => Some(Encoding::Json),
        Operation::Base64 => Some(Encoding::Base64),
        Operation::Trim => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what it is asked to do.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Notes {
        fn note(&mut self, text: String) -> Result<usize, Error> {
            self.0.push(text);
            Ok(self.0.len() - 1)
        }
    }

    impl Vault for Notes {
        fn named(&mut self, name: &str) -> Result<usize, Error> {
            self.note(format!("get {name}"))
        }

        fn compose(&mut self, pieces: &[Piece], encoding: Encoding) -> Result<usize, Error> {
            self.note(format!("compose {pieces:?} {encoding:?}"))
        }

        fn trim(&mut self, secret: usize) -> Result<usize, Error> {
            self.note(format!("trim {secret}"))
        }
    }

    fn applied(operation: Operation, parts: Vec<Part>) -> Part {
        Part::Applied { operation, parts }
    }

    fn check(part: Part, calls: &[&str], expected: Piece) {
        let mut notes = Notes::default();
        assert_eq!(lower(vec![part], &mut notes), Ok(vec![expected]));
        assert_eq!(notes.0, calls);
    }

    #[test]
    fn one_encoding_of_one_secret_needs_no_composition() {
        let secret = || Part::Secret("s".into());
        check(Part::Text("x".into()), &[], Piece::Text("x".into()));
        check(secret(), &["get s"], Piece::Secret(0, Encoding::Raw));
        check(
            applied(Operation::Form, vec![secret()]),
            &["get s"],
            Piece::Secret(0, Encoding::Form),
        );
    }

    #[test]
    fn joined_and_nested_ones_are_composed() {
        let pair = vec![Part::Text("id:".into()), Part::Secret("s".into())];
        check(
            applied(Operation::Form, vec![applied(Operation::Base64, pair)]),
            &[
                "get s",
                "compose [Text(\"id:\"), Secret(0, Encoding::Raw)] Encoding::Raw",
                "compose [Secret(1, Encoding::Base64)] Encoding::Raw",
            ],
            Piece::Secret(2, Encoding::Form),
        );
        check(
            applied(
                Operation::Json,
                vec![applied(Operation::Trim, vec![Part::Secret("s".into())])],
            ),
            &["get s", "trim 0"],
            Piece::Secret(1, Encoding::Json),
        );
    }
}
