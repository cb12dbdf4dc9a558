"""Feature encoding: conversion of dicts and tables to scaled numeric rows."""
