//! Ways to break a service on purpose: each must be found.

use amcast_core::MsgId;
use amcast_services::Envelope;

/// A fault of the service above the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceMutant {
    /// What a session ran is forgotten at once: copies of a command are executed, too.
    ForgetsSessions,
    /// The replicas are told of a checkpoint that it holds one position more than it does.
    NewerCheckpoint,
    /// A state of another node is put in force also if it is older than the replicas need.
    OlderState,
}

impl ServiceMutant {
    /// All of them.
    pub const ALL: &[Self] = &[Self::ForgetsSessions, Self::NewerCheckpoint, Self::OlderState];

    /// The name by which it is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ForgetsSessions => "forgets-sessions",
            Self::NewerCheckpoint => "newer-checkpoint",
            Self::OlderState => "older-state",
        }
    }

    /// The mutant of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}

/// Gives a command a session of its own.
pub(super) fn forget_session(payload: &mut Vec<u8>, msg: MsgId) {
    let Some((envelope, body)) = Envelope::decode(payload) else { return };
    let body = body.to_vec();
    let session = 1 << 62 | u64::from(msg.sender.0) << 40 | msg.seq & 0xff_ffff_ffff;
    payload.clear();
    Envelope { session, ..envelope }.encode(payload);
    payload.extend_from_slice(&body);
}
