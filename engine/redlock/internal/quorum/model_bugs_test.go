package quorum

// A bug is planted into the world, to see that the model finds it.
type bug struct {
	name string

	noWait            bool // a server that lost its data takes part at once (condition 2a)
	noFloor           bool // it starts with floor 0 (condition 2b)
	noBarrier         bool // servers accept requests of parties that do not know of the loss
	minorityOfSources bool // it asks one other server only
	promiseFromReply  bool // promises count from the reply, not from the request

	party   func(*Party)
	onReply func(*process, *envelope)
	apply   func(*Server, Micros, Request) (Reply, []Message)
}
