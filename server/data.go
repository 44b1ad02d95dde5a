package server

// dataRoutes are those of the data plane: objects of a database, by their keys.
func (s *Server) dataRoutes() []route { return nil }
