package dir

import "context"

// Lock takes the store's lock, for tests.
func Lock(ctx context.Context, s *Store) (unlock func(), err error) { return s.lock(ctx) }

// Spell and Unspell are the spelling of segments, for tests.
var (
	Spell   = spell
	Unspell = unspell
)
