//! Where a node's answers go, and where the commands of gateways come from if its members multicast
//! them.

use crate::ingress::Ingress;
use crate::reply_ring::ReplyRingWriter;
use amcast_core::{ClusterShape, MsgId, Outcome, Pid, Role};

/// Where answers go.
pub(crate) enum ReplySink {
    /// To gateways that have processes of the protocol, through shared memory.
    Rings(Box<ReplyRingWriter>),
    /// To the gateways whose commands the node's members have multicast as their own: the replicas of
    /// this rank.
    Ingress(Ingress, usize),
}

impl ReplySink {
    /// The command that this message carried came to this outcome, with this answer.
    pub(crate) fn answer(
        &mut self,
        cluster: ClusterShape,
        msg: MsgId,
        outcome: Outcome,
        bytes: &[u8],
    ) {
        match self {
            Self::Rings(reply_rings) => {
                if let Role::Client { client } = cluster.role(msg.sender) {
                    reply_rings.push(usize::from(client), msg.seq, outcome, bytes);
                }
            }
            Self::Ingress(ingress, me) => {
                if is_of(cluster, *me, msg.sender) {
                    ingress.answer(msg.seq, outcome, bytes);
                }
            }
        }
    }

    /// Serves the gateways for a round.
    pub(crate) fn round(&mut self) -> bool {
        match self {
            Self::Rings(reply_rings) => reply_rings.round(),
            Self::Ingress(ingress, _) => ingress.round(),
        }
    }

    /// Whether it has something to do soon that no doorbell announces.
    pub(crate) fn is_pressing(&self) -> bool {
        matches!(self, Self::Rings(reply_rings) if reply_rings.has_backlog())
    }

    /// Answers that were dropped because their gateways did not keep up, and gateways that were cut off.
    pub(crate) fn dropped(&self) -> u64 {
        match self {
            Self::Rings(reply_rings) => reply_rings.dropped(),
            Self::Ingress(ingress, _) => ingress.dropped(),
        }
    }
}

/// Whether `p` is a replica of this rank.
pub(crate) fn is_of(cluster: ClusterShape, rank: usize, p: Pid) -> bool {
    cluster.has(p)
        && matches!(cluster.role(p), Role::Replica { rank: of, .. } if usize::from(of) == rank)
}
