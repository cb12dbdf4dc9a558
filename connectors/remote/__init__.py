"""Files of web servers, object stores and SFTP servers."""
