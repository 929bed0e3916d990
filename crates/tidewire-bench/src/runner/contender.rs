//! The contenders: Tidewire, the null server and the rivals, each with its version.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use crate::driver::Protocol;
use crate::failure::Failure;
use crate::rival::{self, Rival};
use crate::run_results::{Identity, Role};
use crate::server::ServerKind;

/// The name of Tidewire in results.
pub const TIDEWIRE: &str = "tidewire";
/// The name of the null server in results.
pub const NULL: &str = "null";

/// The difference of Tidewire in a cell that compares it with itself. Both are measured in turn there, because the
/// speed of a machine changes between two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// It uses the rules of the bench.
    Rules,
    /// Its connections are encrypted.
    Tls,
    /// One of many subscribers never reads.
    StuckReader,
    /// It delivers events while the cell is about patches.
    Events,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rules, Self::Tls, Self::StuckReader, Self::Events];

    /// The contender's name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rules => "tidewire-rules",
            Self::Tls => "tidewire-tls",
            Self::StuckReader => "tidewire-stuck",
            Self::Events => "tidewire-events",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Rules => "Tidewire with rules",
            Self::Tls => "Tidewire with TLS",
            Self::StuckReader => "Tidewire with a stuck reader",
            Self::Events => "Tidewire with events",
        }
    }
}

/// A contender that can be started.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its identity in results.
    pub identity: Identity,
    /// Its protocol.
    pub protocol: Protocol,
    program: Program,
}

#[derive(Clone, Debug)]
enum Program {
    Tidewire {
        path: PathBuf,
        variant: Option<Variant>,
    },
    Null,
    Rival(Rival),
}

impl Contender {
    /// Tidewire, from this program. Its version is the commit and a digest of the program.
    ///
    /// # Errors
    /// The program can't be read.
    pub fn tidewire(program: &Path, commit: &str) -> Result<Self, Failure> {
        let version = format!("{commit}, program {}", digest(program)?);
        Ok(Self {
            identity: identity(TIDEWIRE, "Tidewire", Role::Tidewire, version),
            protocol: Protocol::Deepstream,
            program: Program::Tidewire {
                path: program.to_owned(),
                variant: None,
            },
        })
    }

    /// The same as a variant.
    ///
    /// # Errors
    /// As for [`Contender::tidewire`].
    pub fn variant(variant: Variant, program: &Path, commit: &str) -> Result<Self, Failure> {
        let plain = Self::tidewire(program, commit)?;
        let version = plain.identity.version;
        Ok(Self {
            identity: identity(variant.name(), variant.title(), Role::Variant, version),
            program: Program::Tidewire {
                path: program.to_owned(),
                variant: Some(variant),
            },
            ..plain
        })
    }

    /// The null server of this program, whose digest is its version: the generator is in it too.
    ///
    /// # Errors
    /// The program can't be read.
    pub fn null() -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(Failure::system("own program"))?;
        let version = format!("program {}", digest(&own)?);
        Ok(Self {
            identity: identity(NULL, "Null server", Role::Null, version),
            protocol: Protocol::Deepstream,
            program: Program::Null,
        })
    }

    /// A rival.
    ///
    /// # Errors
    /// It is not set up.
    pub fn rival(rival: Rival) -> Result<Self, Failure> {
        let version = rival.version().map_err(|failure| {
            Failure::Server(format!(
                "{} is not set up: {failure}; run `tidewire-bench setup`",
                rival.title
            ))
        })?;
        Ok(Self {
            identity: identity(&rival.name, &rival.title, Role::Rival, version),
            protocol: rival.protocol,
            program: Program::Rival(rival),
        })
    }

    /// Whether it returns publishers' own messages.
    #[must_use]
    pub fn has_echo(&self) -> bool {
        matches!(&self.program, Program::Rival(rival) if rival.has_echo)
    }

    /// Its variant, if it is one of Tidewire.
    #[must_use]
    pub fn difference(&self) -> Option<Variant> {
        match self.program {
            Program::Tidewire { variant, .. } => variant,
            Program::Null | Program::Rival(_) => None,
        }
    }

    /// The server to start for a cell with this many shards of Tidewire, and with or without names for the null
    /// server.
    #[must_use]
    pub fn kind(&self, shards: usize, has_rooms: bool) -> ServerKind {
        match &self.program {
            Program::Tidewire { path, variant } => ServerKind::Tidewire {
                program: path.clone(),
                shards,
                has_rules: *variant == Some(Variant::Rules),
                options: Vec::new(),
            },
            Program::Null => ServerKind::Null { has_rooms },
            Program::Rival(rival) => ServerKind::Rival(rival.clone()),
        }
    }
}

/// The names of all contenders, without the one that a start command makes.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let variants = Variant::ALL.map(Variant::name);
    [&[TIDEWIRE][..], &variants, &[NULL], &rival::NAMES].concat()
}

fn identity(name: &str, title: &str, role: Role, version: String) -> Identity {
    Identity {
        name: name.to_owned(),
        title: title.to_owned(),
        role,
        version,
    }
}

/// Distinguishes one build of a program from another; not a protection against intent.
fn digest(program: &Path) -> Result<String, Failure> {
    let bytes = fs::read(program).map_err(Failure::system(program.display().to_string()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("tidewire");
        let version = |bytes: &str| {
            fs::write(&program, bytes).unwrap();
            Contender::tidewire(&program, "abc")
                .unwrap()
                .identity
                .version
        };
        assert_eq!(version("one"), version("one"));
        assert_ne!(version("one"), version("two"));
        assert!(version("one").starts_with("abc, program "));
        assert!(Contender::tidewire(folder.path(), "abc").is_err());
    }

    #[test]
    fn a_rival_that_is_not_set_up_says_what_to_do() {
        let custom = Rival::from_command("x {port}", true).unwrap();
        let contender = Contender::rival(custom).unwrap();
        assert!(contender.has_echo() && contender.identity.version == "x {port}");
        assert!(names().contains(&"bun") && names().contains(&NULL));
    }
}
