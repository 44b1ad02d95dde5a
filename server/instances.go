package server

import (
	"net/http"

	"github.com/tonbo-go/tonbo"
	"github.com/tonbo-go/tonbo/internal/view"
)

// getInstance tells what a key has, to a key of ours that reaches both the instance key and the database.
func (s *Server) getInstance(c *call) error {
	in, err := s.client.Instances().Get(c.ctx, c.name())
	if err != nil {
		return err
	}
	if !c.key.Reaches(in.Name) {
		return notFound()
	}
	return c.data(http.StatusOK, view.InstanceOf(in))
}

func (s *Server) bindInstance(c *call) error {
	var b struct {
		Database string `json:"database"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	if b.Database == "" {
		return badRequest(`database: which one? {"database": "run-42"}, or its id`)
	}
	if tonbo.ValidateName(b.Database) != nil {
		return notFound()
	}
	in, err := s.client.Instances().Bind(c.ctx, c.name(), b.Database)
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, view.InstanceOf(in))
}

func (s *Server) updateInstance(c *call) error {
	var b updateBody
	if err := c.body(&b); err != nil {
		return err
	}
	o, err := b.options()
	if err != nil {
		return err
	}
	d, err := s.client.Instances().Update(c.ctx, c.name(), o)
	if err != nil {
		return err
	}
	return c.data(http.StatusOK, view.DatabaseOf(d))
}

func (s *Server) releaseInstance(c *call) error {
	if _, err := s.client.Instances().Get(c.ctx, c.name()); err != nil { // a key that has none: 404
		return err
	}
	if err := s.client.Instances().Release(c.ctx, c.name()); err != nil {
		return err
	}
	return c.none()
}

// instanceBody says what a key's next database is.
type instanceBody struct {
	newBody
	Template string `json:"template"`
}

// ensureInstance sees to it that a key has a database that opens. It opens nothing: that is for who asks.
func (s *Server) ensureInstance(c *call) error {
	var b struct {
		instanceBody
		Adopt        string   `json:"adopt"`
		ExpectID     string   `json:"expect_id"`
		ReplaceAfter duration `json:"replace_after"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	create, err := b.options()
	if err != nil {
		return err
	}
	in, err := s.client.Instances().Provide(c.ctx, c.name(), tonbo.EnsureOptions{Create: create, Template: b.Template, Adopt: b.Adopt, ExpectID: b.ExpectID, ReplaceAfter: b.ReplaceAfter.std()})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if in.Started == tonbo.Created {
		status = http.StatusCreated
	}
	return c.data(status, view.InstanceOf(in))
}

func (s *Server) replaceInstance(c *call) error {
	var b struct {
		instanceBody
		From      string `json:"from"`
		DeleteOld bool   `json:"delete_old"`
	}
	if err := c.body(&b); err != nil {
		return err
	}
	create, err := b.options()
	if err != nil {
		return err
	}
	from, err := at("from", b.From)
	if err != nil {
		return err
	}
	in, err := s.client.Instances().Replace(c.ctx, c.name(), tonbo.ReplaceOptions{From: from, Template: b.Template, Create: create, DeleteOld: b.DeleteOld})
	if b.DeleteOld {
		s.keys.EndedSome()
	}
	if err != nil {
		return err
	}
	return c.data(http.StatusCreated, view.InstanceOf(in))
}
