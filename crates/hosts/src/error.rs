//! Why a lab cannot be built or changed.

use std::fmt;
use std::io;

/// Why this machine cannot have a lab, or one of its faults.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// The user is not root.
    NotRoot,
    /// A program is not installed, or cannot be started.
    Program {
        /// Its name.
        program: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A program refused a command: the kernel may have been built without the feature.
    Refused {
        /// The command.
        command: String,
        /// The program's message.
        message: String,
    },
    /// A call of the system failed.
    System {
        /// The action, as in "open the namespace".
        action: String,
        /// The system's error.
        error: io::Error,
    },
    /// The settings or hosts asked for are not possible in any lab.
    Settings(String),
}

impl LabError {
    /// An error of the system during this action.
    pub(crate) fn system(action: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::System { action: action.into(), error: error.into() }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => write!(f, "network namespaces need root: run this as root"),
            Self::Program { program, error } => {
                write!(f, "the program `{program}` cannot be started: {error}; install iproute2")
            }
            Self::Refused { command, message } => write!(f, "`{command}` failed: {message}"),
            Self::System { action, error } => write!(f, "cannot {action}: {error}"),
            Self::Settings(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Program { error, .. } | Self::System { error, .. } => Some(error),
            Self::NotRoot | Self::Refused { .. } | Self::Settings(_) => None,
        }
    }
}
