//! Commands whose turn comes soon: what they will look for is read from memory ahead of them.

use super::{Engine, Executor, is_awaited};
use crate::envelope::Envelope;
use crate::machine::ShardedMachine;
use amcast_core::{Gid, GroupSet, MsgId};

impl<M: ShardedMachine> Executor<M> {
    /// These commands, each with its message and destinations, come next in `shard`'s stream: reads from memory what they
    /// will look for, where they are executed in this thread.
    pub fn look_ahead<'a>(
        &self,
        shard: Gid,
        commands: &mut dyn Iterator<Item = (MsgId, GroupSet, &'a [u8])>,
    ) {
        let Engine::Here(sides) = &self.engine else { return };
        let runs_here = |(id, dst, payload): (MsgId, GroupSet, &'a [u8])| {
            let (envelope, body) = Envelope::decode(payload).filter(|_| dst.len() == 1)?;
            let runs = !envelope.read_only || is_awaited(self.awaits.as_ref(), &envelope, id);
            runs.then_some(body)
        };
        let mut bodies = commands.filter_map(runs_here);
        self.machine.look_ahead(&sides[shard.index()].part, &mut bodies);
    }
}
