package gateway

// Forget makes the store ask for a token again.
func (s *Store) Forget(token string) {
	s.tokens.refused(token)
	s.tokens.mu.Lock()
	s.tokens.renewed = false
	s.tokens.mu.Unlock()
}
