// Package supervise runs a command under a lease, and stops it before the lease ends, even if the
// supervising process stands still or is killed.
//
// # Who watches whom
//
// Three processes take part. lk renews the lease and starts the other two. The command leads a
// process group of its own. The guard is a second process of lk's program, in a group of its own; it
// holds no lease and opens no engine while lk lives.
//
//	       renews
//	lk ------------> engine <- - - - - - - - - - - - - - - - -.
//	 |  \                                                      : leaves the session,
//	 |   \  orders: group, end, asked, epoch, leave            : after the death of lk
//	 |    `-------------- pipe ---------------> guard - - - - -'
//	 |  <------------- exit of the guard --------  |
//	 |                                             |  TERM, KILL if lk does not;
//	 |  signals, TERM, KILL                        |  KILL at the end of the pipe
//	 v                                             v
//	process group of the command <-----------------'
//	 `- - - - lifeline: a pipe open in all descendants, read by the guard
//
// Each order is a line of text (see watch). The guard needs no answer from lk, and lk waits for none.
//
// # Deadlines
//
// The guard counts by the boot clock, which both processes read and which runs while the computer
// sleeps. lk reads the clock before the lease, so a pause of lk makes the deadline earlier, never later:
//
//	end      = bootTime() + lease.Remaining()
//	lk:        TERM at end - grace            KILL when the lease is lost
//	guard:     TERM at end - grace + grace/5  KILL at end
//
// lk tells the guard when it sends TERM itself, so that the command gets it once.
//
// # States of the guard
//
//	            group N          end of the pipe
//	[ready] ------------> [watching] ------------> [killing] ------> [waiting] ------> exit
//	   |                   |      |   KILL, again until   |   until no       |  leaves the session,
//	   | end of the pipe   |      |   the group is gone   |   descendant     |  one attempt of 2 s
//	   v                   |      | at end: KILL          | no leave order   |
//	  exit                 |      `--------> exit         `----> exit        `-- TTL over --> exit
//	                       | KILL by lk, when the command has ended
//	                       `--------> exit
//
// # Failures
//
//   - lk is killed: the kernel kills the leader of the group at once (Linux), and the guard the whole
//     group. If the engine learns of dead processes from the kernel, the guard and the command have the
//     session's file open, and the lock is free when the last of them has died. On a server or a
//     database the guard leaves the session instead, when nothing of the command can still run: lk is
//     gone, the group is empty, nobody has the lifeline open, and no process may descend from the
//     command. It leaves under the epoch of the latest attach. The engine refuses it if lk attached again.
//   - lk stands still (Ctrl-Z, kill -STOP): the guard sends TERM and KILL in time.
//   - The guard is killed: lk starts another and repeats all orders, at most three times. After that it
//     warns, and goes on without a guard.
//   - The guard stands still: a write to the pipe fails after 100 ms, lk kills the guard and starts
//     another.
//   - Both are killed: the kernel kills the leader. Other processes of the group can run on. The lock
//     ends with its TTL.
//   - The server is lost: nothing renews the lease, and lk sends TERM and KILL by the deadlines above.
//   - The lease is lost (TTL, stolen, revoked): lk sends KILL when Lease.Done is closed.
//   - The command has ended: lk kills the guard before it reaps the command, since the number of the
//     group may belong to another group afterwards.
//
// Processes that leave the group (setsid), and work on other machines, are out of reach. They can
// outlive the lock. Fences protect against them.
package supervise
