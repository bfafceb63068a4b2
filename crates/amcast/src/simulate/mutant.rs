//! Ways to break a service on purpose: each must be found.

use amcast_core::{MsgId, Property};
use amcast_mutants::mutant::MutantInfo;
use amcast_smr::Envelope;

/// A fault of the service above the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceMutant {
    /// What a session ran is forgotten at once: copies of a command are executed, too.
    ForgetsSessions,
    /// The replicas are told of a checkpoint that it holds one position more than it does.
    NewerCheckpoint,
    /// What replicas deliver while a state is awaited is dropped.
    DropsInbox,
}

impl ServiceMutant {
    /// All of them, with what each breaks.
    pub const ALL: &[(Self, MutantInfo)] = &[
        (
            Self::ForgetsSessions,
            MutantInfo {
                name: "forgets-sessions",
                what: "a session forgets what it ran: copies of a command are executed, too",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::NewerCheckpoint,
            MutantInfo {
                name: "newer-checkpoint",
                what: "replicas are told that a checkpoint holds one position more than it does",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
        (
            Self::DropsInbox,
            MutantInfo {
                name: "drops-inbox",
                what: "what replicas deliver while a state is awaited is dropped",
                breaks: &[Property::Linearizable],
                shown_by: None,
            },
        ),
    ];

    /// The mutant of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, info)| info.name == name).map(|(mutant, _)| *mutant)
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
