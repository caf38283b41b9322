//! Rendered text in pieces, which distinguish the template's text, values and secrets.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use crate::error::{Code, Error};
use crate::escape;
use crate::part::{self, Operation, Part};

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Template,
    Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Text(String, Origin),
    /// A secret, possibly encoded. Never a [`Part::Text`].
    Secret(Part),
}

/// A text in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pieces: Vec<Piece>,
}

impl Text {
    pub(crate) fn new(text: &str, origin: Origin) -> Self {
        let mut new = Self::default();
        new.push(Piece::Text(text.to_string(), origin));
        new
    }

    pub(crate) fn secret(name: &str) -> Self {
        Self {
            pieces: Vec::from([Piece::Secret(Part::Secret(name.to_string()))]),
        }
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        match (self.pieces.last_mut(), piece) {
            (_, Piece::Text(text, _)) if text.is_empty() => {}
            (Some(Piece::Text(last, before)), Piece::Text(text, origin)) if *before == origin => last.push_str(&text),
            (_, piece) => self.pieces.push(piece),
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for piece in other.pieces {
            self.push(piece);
        }
    }

    /// The whole text, or `None` if it contains a secret.
    pub(crate) fn public(&self) -> Option<String> {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text, _) => Some(text.as_str()),
                Piece::Secret(_) => None,
            })
            .collect()
    }

    /// Applies `operation` to the text.
    ///
    /// # Errors
    /// [`Code::TooLarge`].
    pub(crate) fn apply(self, operation: Operation) -> Result<Self, Error> {
        if !self.is_secret() && matches!(operation, Operation::Form | Operation::Percent) {
            // These operations encode each character on its own, so every piece keeps its origin.
            let mut result = Self::default();
            for piece in self.pieces {
                if let Piece::Text(text, origin) = piece {
                    result.push(Piece::Text(escape::escape(operation, &text), origin));
                }
            }
            return Ok(result);
        }
        let from_value = |piece: &Piece| matches!(piece, Piece::Text(_, Origin::Value));
        let origin = if self.pieces.iter().any(from_value) {
            Origin::Value
        } else {
            Origin::Template
        };
        let mut result = Self::default();
        for part in part::apply(operation, self.into_parts())? {
            result.push(match part {
                Part::Text(text) => Piece::Text(text, origin),
                part @ (Part::Secret(_) | Part::Applied { .. }) => Piece::Secret(part),
            });
        }
        Ok(result)
    }

    /// Whether the text contains a secret.
    pub(crate) fn is_secret(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Secret(_)))
    }

    /// Checks the size of the text so far.
    ///
    /// # Errors
    /// [`Code::TooLarge`].
    pub(crate) fn check_size(&self) -> Result<(), Error> {
        let mut size = part::Size::default();
        let mut in_text = false;
        for piece in &self.pieces {
            match piece {
                Piece::Text(text, _) if in_text => size.add_bytes(text),
                Piece::Text(text, _) => size.add_text(text),
                Piece::Secret(part) => size.add(part),
            }
            in_text = matches!(piece, Piece::Text(..));
        }
        size.check()
    }

    /// Refuses control characters. The sender checks secrets.
    ///
    /// # Errors
    /// [`Code::Header`].
    pub(crate) fn check_header(&self) -> Result<(), Error> {
        for piece in &self.pieces {
            let Piece::Text(text, origin) = piece else { continue };
            if let Some(character) = text.chars().find(|character| character.is_control()) {
                let whose = match origin {
                    Origin::Template => "the template's text",
                    Origin::Value => "a value",
                };
                return Err(Error::without_position(
                    Code::Header,
                    alloc::format!(
                        "a header cannot hold U+{:04X}, which {whose} has; `trim` takes white space from both ends",
                        u32::from(character)
                    ),
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        let parts = self.pieces.into_iter().map(|piece| match piece {
            Piece::Text(text, _) => Part::Text(text),
            Piece::Secret(part) => part,
        });
        part::merged(parts.collect())
    }
}
