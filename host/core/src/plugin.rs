//! The worlds of plugins, and the host interfaces they may import (`wit/`).

/// The kind of a plugin, which decides what it may export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, strum::AsRefStr, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// Edits header fields.
    HeaderFilter,
    /// Mints credentials for clusters.
    CredentialProvider,
    /// Generates parameters for ApplicationSets.
    Generator,
}

impl World {
    /// The interface that a guest of this world exports, without its version.
    pub fn export(self) -> &'static str {
        match self {
            Self::HeaderFilter => "tollgate:plugin/headers",
            Self::CredentialProvider => "tollgate:plugin/credentials",
            Self::Generator => "tollgate:plugin/generators",
        }
    }
}

/// A host interface of the package `tollgate:plugin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::AsRefStr, strum::IntoStaticStr, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Import {
    /// Milliseconds since 1970.
    Clock,
    /// Lines in the gateway's log.
    Log,
    /// Random bytes.
    Random,
    /// Digests, keyed hashes and signatures over handles.
    Crypto,
    /// Identities of the pod.
    Ambient,
    /// Intermediate credentials, kept between calls.
    Memo,
    /// Secrets as plain bytes.
    Reveal,
}

impl Import {
    /// Whether guests of `world` can import it.
    pub fn is_available_in(self, world: World) -> bool {
        match self {
            Self::Clock | Self::Log | Self::Random => true,
            Self::Crypto | Self::Ambient | Self::Memo => world != World::HeaderFilter,
            // Generators get answers unchanged even without it.
            Self::Reveal => world == World::CredentialProvider,
        }
    }
}
